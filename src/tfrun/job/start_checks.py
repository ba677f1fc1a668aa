"""Checks, before anything is started, that script, machine and TensorFlow are there and fit."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.machinery import PathFinder

from tfrun.job import supported_versions
from tfrun.job.errors import UsageError
from tfrun.job.spec import MAX_HERE, Program

_INSTALL = 'pip install "tfrun[cpu]", or "tfrun[gpu]" on a machine with NVIDIA GPUs'


def check_directory() -> None:
    """Refuses a working directory that has been removed.

    Raises:
      UsageError: TFRUN-101.
    """
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        what = "the current directory no longer exists"
        fix = "Go to another one; or, if it has been made again, cd into it again"
        raise UsageError("TFRUN-101", what, expected="to be started in one", fix=fix) from None


def check_program(program: Program) -> None:
    """Refuses a script that is not there, or a module that Python would not find.

    Raises:
      UsageError: TFRUN-101 or TFRUN-102.
    """
    if program.is_module:
        _check_module(program.target)
        return
    # os.path, because pathlib raises on a name that is too long and in a directory that may not
    # be searched.
    if os.path.isfile(program.target) and os.access(program.target, os.R_OK):  # noqa: PTH113
        return
    if os.path.isdir(program.target):  # noqa: PTH112
        what = f"{program.target!r:.200} is a directory"
    elif os.path.exists(program.target):  # noqa: PTH110
        what = f"{program.target!r:.200} cannot be read"
    else:
        what = f"the script {program.target!r:.200} does not exist"
    fix = "tfrun's options go before the script, the script's own after it"
    raise UsageError("TFRUN-101", what, where="SCRIPT", expected="a Python file", fix=fix)


def check_crowd(machines: Sequence[str]) -> None:
    """Refuses more processes than a machine can start before it is thought to be lost.

    `machines` has the machine of each task.

    Raises:
      UsageError: TFRUN-103.
    """
    name, many = max(Counter(machines).items(), key=lambda item: item[1])
    if many > MAX_HERE:
        what = f"{many:,} workers and servers are too many for {name}"
        raise UsageError("TFRUN-103", what, where="-n, --ps", expected=f"at most {MAX_HERE:,}")


def _check_module(name: str) -> None:
    if all(part.isidentifier() for part in name.split(".")) and _is_runnable(name):
        return
    without = name.removesuffix(".py")
    raise UsageError(
        "TFRUN-102",
        f"the module {name!r:.200} does not exist, or is a package without __main__",
        where="-m",
        expected="a module that python -m would find from this directory",
        fix=f"Leave out -m to run the file, or write -m {without:.200}" if without != name else "",
    )


def _is_runnable(name: str) -> bool:
    """Looks a module up as `python -m` does, but without importing its parents.

    They may import TensorFlow, which takes seconds and is the workers' business.
    """
    *parents, last = name.split(".")
    parts = [*parents, last, "__main__"]
    spec = None
    try:
        for depth, part in enumerate(parts, start=1):
            if spec is None:
                path = [os.getcwd(), *sys.path]  # noqa: PTH109
                spec = PathFinder.find_spec(part, path) or importlib.util.find_spec(part)
            elif spec.submodule_search_locations is None:
                return depth == len(parts)  # a plain module, and nothing is wanted below it
            else:
                path = list(spec.submodule_search_locations)
                # Not its full name: the finder would look for its parent in sys.modules.
                spec = PathFinder.find_spec(part, path)
            if spec is None:
                return False
    except (ImportError, OSError, ValueError):  # a name too long for the disk; "__main__"
        return False
    return True


def check_tensorflow() -> None:
    """Refuses to start without a TensorFlow and a Keras that tfrun fits; imports neither.

    Raises:
      UsageError: TFRUN-106.
    """
    for program, tested in supported_versions.TESTED.items():
        if importlib.util.find_spec(program.lower()) is None:
            what = f"{program} is not installed"
            raise UsageError("TFRUN-106", what, fix=f"Install it: {_INSTALL}")
        name, version = supported_versions.distribution_of(program)
        if name and supported_versions.release(version) < tested.lowest:
            raise UsageError(
                "TFRUN-106",
                f"{name} {version} is too old",
                expected=".".join(map(str, tested.lowest)) + " or newer",
                fix=f"Upgrade it: {_INSTALL}",
            )
