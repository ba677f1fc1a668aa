"""Identifies a call by its place in the script, so that workers know what others do there."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tfrun.engine.script_lines import LIBRARIES

# What is between the script's own lines may differ: only the chief saves.
_LIBRARIES = (*LIBRARIES, "<frozen")


class Frame(NamedTuple):
    """A line of a function of the script, equal on all workers wherever the file lies."""

    file: str
    function: str
    begins: int
    line: int


@dataclass(frozen=True)
class CallPlace:
    """The lines of the script that have led to a call, the outermost first."""

    frames: tuple[Frame, ...]
    files: tuple[str, ...] = field(compare=False)  # with their folders, on this machine

    def is_met_by(self, other: Sequence[Frame]) -> bool:
        """Whether another worker that stands at `other` does what this one does here.

        It is the same place; or the script asks who it is: `if is_chief: … else: …`.
        """
        for mine, theirs, file in zip(self.frames, other, self.files, strict=False):
            if mine != theirs:
                source = "".join(linecache.getlines(file))
                same = mine[:3] == theirs[:3]
                return same and in_other_branch(source, mine.line, theirs.line)
        return len(self.frames) == len(other)

    def __str__(self) -> str:
        last = self.frames[-1] if self.frames else None
        return f"{last.file}:{last.line}" if last else "the script"


def here() -> CallPlace:
    """The place at which the script stands now; without any frames in a library's own thread."""
    frames, files = [], []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_LIBRARIES):
            name = Path(code.co_filename).name
            frames.append(Frame(name, code.co_name, code.co_firstlineno, frame.f_lineno))
            files.append(code.co_filename)
        frame = frame.f_back
    return CallPlace(tuple(reversed(frames)), tuple(reversed(files)))


def in_other_branch(source: str, line: int, other: int) -> bool:
    """Whether one line is in the `if` branch and the other one in the `else` of one statement."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False

    def within(statements: list[ast.stmt], number: int) -> bool:
        return any(s.lineno <= number <= (s.end_lineno or s.lineno) for s in statements)

    return any(
        within(node.body, a) and within(node.orelse, b)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for a, b in ((line, other), (other, line))
    )
