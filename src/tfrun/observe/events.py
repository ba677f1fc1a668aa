"""`events.jsonl`: what happened in a job, in order. The one source of every view of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
Listener = Callable[[Mapping[str, Any]], None]


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
        self.listeners: list[Listener] = []

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
