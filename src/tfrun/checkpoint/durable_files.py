"""Writes files so that they are complete and on disk when a function returns, or absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tfrun.job import files


def write_synced(path: Path, data: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Waits until the disk has a file's content, or a directory's list of names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy(source: Path, target: Path) -> None:
    """Copies a file, whole or not at all; the disk need not have it yet.

    Raises:
      OSError: it cannot be read or written.
    """
    with files.whole(target) as temporary:
        shutil.copyfile(source, temporary)


def remove(path: Path) -> None:
    """Removes a file or a directory as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            pass
