"""Starts tfrun's own Python processes, and counts the cores that one may use."""

from __future__ import annotations

import os
import sys


def python_command(module: str, *args: str) -> list[str]:
    """Returns the command line that runs `module.main()` in a new interpreter.

    `python -m` would put the working directory first on the path, so that a user's `random.py`
    or `types.py` there would break processes that have nothing to do with it.
    """
    return [sys.executable, "-c", code_to_run(module), *args]


def code_to_run(module: str) -> str:
    """Returns the code of that command, which has no quote, no !, no backslash, no line break."""
    return (
        f"import sys; sys.path[:] = [p for p in sys.path if p]; from {module} import main; main()"
    )


def usable_cores() -> int:
    """Returns the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
