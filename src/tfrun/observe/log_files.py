"""Reads the logs of a run, and nothing else: no path, link or device leads out of logs/."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20  # of one answer
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,250}\.log")
_FOLDER = os.O_DIRECTORY


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """One of a run's logs: its name, bytes, and when it was written last (seconds, epoch)."""

    name: str
    size: int
    changed: float


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Bytes `start` to `start + len(data)` of a log that has `size` bytes by now."""

    start: int
    size: int
    data: bytes


def names(run_dir: Path) -> list[LogFile]:
    """Returns the logs of a run by name; links and what else is no regular file are left out."""
    found = []
    with contextlib.suppress(OSError), _opened(run_dir / "logs", _FOLDER) as folder:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  (a path could be another folder by now)
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if NAME.fullmatch(name) and stat.S_ISREG(status.st_mode):
                    found.append(LogFile(name=name, size=status.st_size, changed=status.st_mtime))
    return found


def read(run_dir: Path, name: str, *, start: int | None = None, most: int = 1 << 16) -> Piece:
    """Reads a piece of a log.

    Args:
      run_dir: the run directory.
      name: the file's name in logs/.
      start: the first byte; None is as many from the end as `most` allows.
      most: how many bytes, at most `MOST_BYTES`.

    Raises:
      FileNotFoundError: there is no such log, or it is none: a path, a link, a device.
    """
    if not NAME.fullmatch(name):
        raise FileNotFoundError(name)
    with (
        contextlib.suppress(OSError),
        _opened(run_dir / "logs", _FOLDER) as folder,
        _opened(name, os.O_NONBLOCK, folder) as file,  # a pipe would be waited for
    ):
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode):
            size, most = status.st_size, min(most, MOST_BYTES)
            begin = max(0, size - most) if start is None else min(start, size)
            return Piece(start=begin, size=size, data=os.pread(file, most, begin))
    raise FileNotFoundError(name)


@contextlib.contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    file = os.open(path, flags | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)
