"""Appends to a file over a disk that is full for a while, and marks what is missing.

Training is worth more than what is written of it: it goes on, and so does the file once there is
room again.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from tfrun.job import files

MOST_SAID = 3  # times that it is said; a disk may be full again and again
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Gets how many pieces are missing, of how many bytes, and why; returns whole lines.
Mark = Callable[[int, int, str], bytes]


class Appender:
    """Appends pieces; in the place of what could not be written stands a mark."""

    def __init__(self, path: Path, mark: Mark, say: Callable[[str], None]) -> None:
        """Args:
        path: the file; one that is not there is made.
        mark: makes what stands in the place of what is missing.
        say: tells a person that the file is not written, and that it is again.

        Raises:
          OSError: it cannot be opened, and not for lack of room.
        """
        self.path, self._mark, self._say = path, mark, say
        self._fd, self._lock = -1, threading.Lock()
        self._closed = self._within_line = False
        self._pieces = self._bytes = self._said = 0
        self._reason = ""
        try:
            self._fd = files.opener(path, files.APPEND)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._failed(error)

    def add(self, piece: bytes) -> None:
        """Appends a piece; without room it is missing. Several threads may."""
        with self._lock:
            if not self._closed:
                self._add(piece)

    def _add(self, piece: bytes) -> None:
        mark = b""
        if self._pieces:
            begin = b"\n" if self._within_line else b""
            mark = begin + self._mark(self._pieces, self._bytes, self._reason)
        written, error = self._write(mark + piece)
        if written >= len(mark):
            self._pieces = self._bytes = 0
        if error is None:
            if self._reason and self._said <= MOST_SAID:
                self._say(f"{self.path} is written again; a line there says what is missing")
            self._reason = ""
            return
        self._failed(error)
        self._pieces += 1
        self._bytes += len(piece) - max(0, written - len(mark))

    @property
    def lacks(self) -> bool:
        """Whether something is missing that no mark tells of yet."""
        return bool(self._pieces)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _write(self, data: bytes) -> tuple[int, OSError | None]:
        """Returns how much was written, and why not all of it."""
        written, trouble = 0, None
        try:
            if self._fd < 0:
                self._fd = files.opener(self.path, files.APPEND)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            trouble = error
        if written:
            self._within_line = data[written - 1 : written] != b"\n"
        return written, trouble

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if not self._reason:
            self._said += 1
            if self._said <= MOST_SAID:
                self._say(f"{self.path} is not written any more: {reason}")
        self._reason = reason


def in_a_log(pieces: int, size: int, reason: str) -> bytes:
    """The mark in a log: how many bytes are missing there."""
    many = "1 byte is" if size == 1 else f"{size:,} bytes are"
    return f"--- {many} missing here: {reason} ---\n".encode()
