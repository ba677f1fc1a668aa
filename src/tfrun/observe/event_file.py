"""Reads `events.jsonl` from an offset, so that whoever comes back has missed nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tfrun.job import files

MOST_BYTES = 1 << 20  # of one look
_BLOCK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look at the file has found.

    Attributes:
      lines: whole lines, each a JSON object.
      offset: the byte to go on from.
      anew: the file is another one than the offset was of: these lines are from its beginning.
      more: there is more to read at once.
    """

    lines: list[str]
    offset: int
    anew: bool = False
    more: bool = False


def look(path: Path, offset: int = 0, *, without: Collection[str] = ()) -> Look:
    """Reads the whole lines from `offset` on; of the last one's end, if it is not there yet, none.

    Args:
      path: events.jsonl; one that is not there yet is empty.
      offset: a byte that a look has returned before; 0 is the beginning.
      without: kinds of events that are left out.
    """
    try:
        with files.to_read(path) as file:
            anew = not _is_line_start(file, offset)
            begin = 0 if anew else offset
            file.seek(begin)
            data = file.read(MOST_BYTES)
    except OSError:  # it is not there yet, or no file
        return Look(lines=[], offset=0, anew=offset > 0)
    whole, newline, _ = data.rpartition(b"\n")
    full = len(data) == MOST_BYTES
    if not newline and full:  # no event is that long: it is none of ours
        return Look(lines=[], offset=begin + len(data), anew=anew, more=True)
    lines = [
        line for line in whole.decode("utf-8", "replace").split("\n") if _is_wanted(line, without)
    ]
    return Look(lines=lines, offset=begin + len(whole) + len(newline), anew=anew, more=full)


def end(path: Path) -> int:
    """Returns the offset behind the last whole line."""
    try:
        with files.to_read(path) as file:
            size = file.seek(0, os.SEEK_END)
            for start in range(size, 0, -_BLOCK):
                begin = max(0, start - _BLOCK)
                file.seek(begin)
                at = file.read(start - begin).rfind(b"\n")
                if at >= 0:
                    return begin + at + 1
    except OSError:
        pass
    return 0


def _is_line_start(file, offset: int) -> bool:
    if offset <= 0:
        return offset == 0
    file.seek(offset - 1)
    return file.read(1) == b"\n"


def _is_wanted(line: str, without: Collection[str]) -> bool:
    """Whether it is an event, and not one that a crash has cut off."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("event") not in without
