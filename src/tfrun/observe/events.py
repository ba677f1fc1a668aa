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
    """Reads all whole lines; a last line cut off by a crash is left out."""
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events
