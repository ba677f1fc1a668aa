"""Runs a program as `python script.py …` or `python -m module …` would, in this process."""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import sys
import traceback
import types
from typing import Any

from tfrun.job.spec import Program

# Frames of these files lead to the script and mean nothing to its author.
_OWN_FILES = (
    __file__,
    os.path.join(os.path.dirname(__file__), "bootstrap.py"),  # noqa: PTH118, PTH120
    runpy.__file__,
    "<frozen runpy>",
)


def run(program: Program) -> None:
    """Runs the program as `__main__`; whatever it raises comes through."""
    sys.argv = [program.target, *program.args]
    if program.is_module:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
    else:
        _run_file(program.target)


def _run_file(path: str) -> None:
    """Like the interpreter: a real `__main__` module, so that pickling finds its classes."""
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    path = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - as the interpreter does
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __spec__=None,
        __cached__=None,
        __package__=None,
    )
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def exit_code(error: BaseException | None) -> int:
    """Returns the exit code that the interpreter would give, and says what it would say."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    trim(error)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def describe(error: BaseException) -> dict[str, Any]:
    """Returns "type", "message" and "traceback" (its end, 16 KB at most) of an exception."""
    if isinstance(error, SystemExit):
        return {
            "type": "SystemExit",
            "message": str(error.code),
            "traceback": f"SystemExit: {error.code}",
        }
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        message = str(error)
    except Exception:  # the user's own __str__
        message = "<exception str() failed>"
    return {
        "type": type(error).__name__,
        "message": message[:4096],
        "traceback": text[-16384:],
    }


def trim(error: BaseException) -> None:
    """Drops the frames above the user's own from the traceback."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename in _OWN_FILES:
        frames = frames.tb_next
    # A syntax error has no frame of the user's, and needs none of ours.
    error.__traceback__ = frames
