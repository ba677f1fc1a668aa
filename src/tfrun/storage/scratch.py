"""Where a machine of a job puts what it reads from a storage, or is about to write to one.

It is on the disk, and goes with the job's directory in memory: at the end of the job's agent, or
of one that comes later where that was killed. Without a job it goes with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "tfrun-scratch-"


def beside(state_dir: Path) -> Path:
    """Returns the scratch directory of the job with this directory in memory."""
    return Path(tempfile.gettempdir(), f"{PREFIX}{state_dir.name}")


def folder(state_dir: Path | None) -> Path:
    """Returns this job's scratch directory on this machine, which is there then.

    Args:
      state_dir: the job's directory in memory; None outside a job.

    Raises:
      OSError: it cannot be made.
    """
    if state_dir is None:
        return _own()
    found = beside(state_dir)
    found.mkdir(mode=0o700, exist_ok=True)
    if found.is_symlink() or found.stat().st_uid != state_dir.stat().st_uid:
        raise FileExistsError(17, "somebody else's directory has this name", str(found))
    return found


@contextlib.contextmanager
def within(state_dir: Path | None) -> Iterator[Path]:
    """Lends an empty directory, which is removed at the end.

    Raises:
      OSError: it cannot be made.
    """
    made = Path(tempfile.mkdtemp(prefix="part-", dir=folder(state_dir)))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def remove(state_dir: Path) -> None:
    """Removes the scratch directory of a job that has ended."""
    shutil.rmtree(beside(state_dir), ignore_errors=True)


@functools.cache
def _own() -> Path:
    made = tempfile.mkdtemp(prefix=PREFIX)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)
