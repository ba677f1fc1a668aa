"""Shortens what Python writes when a signal such as SIGSEGV ends a process to a few lines. Pure."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

BEGIN = "Fatal Python error: "
MAX_CHARACTERS = 1 << 16
_FRAME = re.compile(r'  File "(?P<file>[^"\n]+)", line \d+ in .+')
_LIBRARIES = (
    f"{Path(__file__).parents[1]}/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")),
)


def in_short(dump: str) -> str:
    """Returns the error, where it happened, and from which line of the script, a line each.

    Args:
      dump: what faulthandler has written, of all threads; may be cut off.
    """
    error, *lines = dump.splitlines()
    threads: list[list[str]] = []
    current = None
    for line in lines:
        if line.startswith(("Thread 0x", "Current thread 0x")):
            threads.append([])
            current = threads[-1] if line.startswith("Current") else current
        elif _FRAME.fullmatch(line) and threads:
            threads[-1].append(line)
    # A thread of TensorFlow's own has no Python: then the main thread tells, which comes last.
    stack = current or (threads[-1] if threads else [])
    script = next((frame for frame in stack[1:] if _is_scripts(frame)), "")
    return "\n".join(line for line in (error, *stack[:1], script) if line) + "\n"


def _is_scripts(frame: str) -> bool:
    found = _FRAME.fullmatch(frame)
    file = found["file"] if found else "<"
    parts = set(Path(file).parts)
    return not file.startswith(("<", *_LIBRARIES)) and not parts & {
        "site-packages",
        "dist-packages",
    }
