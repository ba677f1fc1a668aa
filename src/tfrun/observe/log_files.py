"""Reads the logs of a run, and nothing else: no path, link or device leads out of logs/."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20  # of one answer
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,250}\.log")


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
    """Returns the logs of a run by name; links and whatever else is no regular file are left out.

    Args:
      run_dir: the run directory.
    """
    found = []
    try:
        folder = _open_folder(run_dir)
    except OSError:
        return []
    try:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  (a path could be another folder by now)
            if not NAME.fullmatch(name):
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append(LogFile(name=name, size=status.st_size, changed=status.st_mtime))
    finally:
        os.close(folder)
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
    most = min(most, MOST_BYTES)
    try:
        folder = _open_folder(run_dir)
        try:
            # Not blocking: a pipe would be waited for.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        raise FileNotFoundError(name) from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(name)
        size = status.st_size
        begin = max(0, size - most) if start is None else min(start, size)
        return Piece(start=begin, size=size, data=os.pread(file, most, begin))
    finally:
        os.close(file)


def _open_folder(run_dir: Path) -> int:
    return os.open(run_dir / "logs", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
