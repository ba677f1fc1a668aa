"""Finds which packages a script imports, from its text and that of the files beside it."""

from __future__ import annotations

import re
from pathlib import Path

MAX_FILES = 100
MAX_BYTES = 1 << 20  # of a file; what is larger is no program that somebody has written

_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w[\w.]*(?:[ \t]*,[ \t]*\w[\w.]*)*)", re.M)


def imported_by(script: Path) -> frozenset[str]:
    """Returns the first parts of all the names that are imported, anywhere in the text.

    Imports by other means are not seen, and some that never happen are. A file that cannot be read
    imports nothing.

    Args:
      script: a Python file.
    """
    folder = script.parent
    found: set[str] = set()
    waiting, seen = [script], {script}
    while waiting and len(seen) < MAX_FILES:
        names = _names(waiting.pop())
        found |= names
        for name in names:
            for path in (folder / f"{name}.py", folder / name / "__init__.py"):
                if path not in seen and path.is_file():
                    seen.add(path)
                    waiting.append(path)
    return frozenset(found)


def _names(path: Path) -> set[str]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return set()
    return {
        name.strip().partition(".")[0]
        for names in _IMPORT.findall(text)
        for name in names.split(",")
    }
