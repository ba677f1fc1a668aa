"""`events.jsonl`: what happened in a job, in order. The one source of every view of it.

It is read whole, or from an offset on, so that whoever comes back has missed nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tfrun.job import files
from tfrun.job.full_disk_appender import Appender

# What these are in each event that has them: whoever reads events counts on it.
_NONE = type(None)
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("event", "task"), (str,)),
    **dict.fromkeys(("agent", "host", "state", "name", "script", "how"), (str, _NONE)),
    **dict.fromkeys(("number", "round", "pid", "step", "epoch", "restarts"), (int, _NONE)),
    **dict.fromkeys(("time", "started"), (int, float, _NONE)),
    "report": (dict, _NONE),
}
JobEvent = Mapping[str, Any]  # one line of the file

MOST_BYTES = 1 << 20  # of one look at the file
_BLOCK = 1 << 16


class EventLog:
    """Appends events, one JSON object a line: {"time": seconds since the epoch, "event": …}.

    On a full disk events are missing, and {"event": "missing", "events": how many, "reason": …}
    stands in their place once there is room again. The `listeners` are told of each event all the
    same.
    """

    def __init__(self, path: Path, say: Callable[[str], None] = lambda text: None) -> None:
        """Args:
        path: the file.
        say: tells a person that it is not written, and that it is again.

        Raises:
          OSError: it cannot be opened, and not for lack of room.
        """
        self._file = Appender(path, _missing, say)
        self.listeners: list[Callable[[JobEvent], None]] = []

    def add(self, event: str, /, **fields: Any) -> None:
        """Appends an event."""
        values = {**fields, "time": round(time.time(), 4), "event": event}
        for listener in self.listeners:
            listener(values)
        self._file.add((json.dumps(values) + "\n").encode())

    def close(self) -> None:
        self._file.close()


def _missing(pieces: int, size: int, reason: str) -> bytes:
    values = {"events": pieces, "reason": reason, "time": round(time.time(), 4), "event": "missing"}
    return (json.dumps(values) + "\n").encode()


def read_events(path: Path) -> list[dict[str, Any]]:
    """Reads all whole lines; those that are damaged, or cut off by a crash, are left out."""
    found = (event_of(line) for line in files.read(path).split(b"\n"))
    return [event for event in found if event is not None]


@dataclass(frozen=True, kw_only=True)
class NewLines:
    """What a look at the file has found.

    Attributes:
      lines: whole lines, each an event.
      offset: the byte to go on from.
      anew: the file is another one than the offset was of: these lines are from its beginning.
      more: there is more to read at once.
    """

    lines: list[str]
    offset: int
    anew: bool = False
    more: bool = False


def new_lines(path: Path, offset: int = 0, *, without: Collection[str] = ()) -> NewLines:
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
        return NewLines(lines=[], offset=0, anew=offset > 0)
    whole, newline, _ = data.rpartition(b"\n")
    full = len(data) == MOST_BYTES
    if not newline and full:  # no event is that long: it is none of ours
        return NewLines(lines=[], offset=begin + len(data), anew=anew, more=True)
    lines = [
        line.decode("utf-8", "replace")
        for line in whole.split(b"\n")
        if (event := event_of(line)) and event.get("event") not in without
    ]
    return NewLines(lines=lines, offset=begin + len(whole) + len(newline), anew=anew, more=full)


def end_of_lines(path: Path) -> int:
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


def _is_line_start(file: BinaryIO, offset: int) -> bool:
    if offset <= 0:
        return offset == 0
    file.seek(offset - 1)
    return file.read(1) == b"\n"


def event_of(line: bytes) -> dict[str, Any] | None:
    """Returns the event that a line holds; None when it holds none.

    A byte that is no UTF-8 costs its character, not the line.
    """
    try:
        event = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    known = event.keys() & _TYPES.keys()
    return event if all(_is_of(_TYPES[name], event[name]) for name in known) else None


def _is_of(types: tuple[type, ...], value: Any) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)
