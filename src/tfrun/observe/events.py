"""`events.jsonl`: what happened in a job, in order. The one source of every view of it."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfrun.job import own_file

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

    The `listeners` are told of each, also when the log has ended.
    """

    def __init__(self, path: Path) -> None:
        self._fd: int | None = own_file.opener(path, own_file.APPEND)
        self.error: OSError | None = None
        self.listeners: list[Listener] = []

    def add(self, event: str, /, **fields: Any) -> None:
        """Appends an event. A full disk ends the log, never the job; `error` then says why."""
        values = {**fields, "time": round(time.time(), 4), "event": event}
        for listener in self.listeners:
            listener(values)
        if self._fd is None:
            return
        line = (json.dumps(values) + "\n").encode()
        try:
            if os.write(self._fd, line) < len(line):  # the last bytes of the disk
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.error = error
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read_events(path: Path) -> list[dict[str, Any]]:
    """Reads all whole lines; those that are damaged, or cut off by a crash, are left out."""
    found = (event_of(line) for line in own_file.read(path).split(b"\n"))
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
