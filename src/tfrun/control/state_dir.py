"""The directory in memory in which the workers of a machine keep their snapshots.

It belongs to one agent, which removes it at its end. One that was killed leaves it: the launcher
removes the directory of a local agent, and every agent those that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "tfrun-"
# Between making the directory and locking it an agent takes no longer.
YOUNG_SECONDS = 60.0


def state_dir(token: str, agent: str) -> Path:
    """Returns the directory's path, `/dev/shm/tfrun-` and eight hexadecimal digits.

    Args:
      token: the job's secret, of which the name tells nothing.
      agent: the agent's name; several may run on one machine.
    """
    parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    digest = hashlib.sha256(f"{token}/{agent}".encode()).hexdigest()
    return parent / f"{PREFIX}{digest[:8]}"


class StateDir:
    """A directory of this agent's own, locked while the agent lives.

    Attributes:
      path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _remove_left_ones(path.parent)
        path.mkdir(mode=0o700)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes the directory and what is in it."""
        remove(self.path)
        os.close(self._fd)


def remove(path: Path) -> None:
    """Removes a state directory if it is there."""
    shutil.rmtree(path, ignore_errors=True)


def _remove_left_ones(parent: Path) -> None:
    """Removes our directories whose agents were killed: memory that nobody would give back."""
    for path in parent.glob(f"{PREFIX}????????"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < YOUNG_SECONDS:
                continue
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its agent holds it while it lives
                remove(path)
            finally:
                os.close(fd)
