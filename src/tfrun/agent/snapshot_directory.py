"""The directory in shared memory in which the workers of a machine keep their snapshots.

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

from tfrun.storage import scratch

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "tfrun-"
LEAST_BYTES = 1 << 30  # with less, the states are on the disk, where they survive a worker as well
# Between making the directory and locking it an agent takes no longer.
YOUNG_SECONDS = 60.0


def state_dir(token: str, agent: str, attempt: int = 0) -> Path:
    """Returns the directory's path, `/dev/shm/tfrun-` and eight hexadecimal digits.

    In the directory for temporary files where there is little shared memory.

    Args:
      token: the job's secret, of which the name tells nothing.
      agent: the agent's name; several may run on one machine.
      attempt: how often the agent was started before: the process before may still be there.
    """
    parent = SHARED_MEMORY if is_large(SHARED_MEMORY) else Path(tempfile.gettempdir())
    name = f"{token}/{agent}/{attempt}" if attempt else f"{token}/{agent}"
    digest = hashlib.sha256(name.encode()).hexdigest()
    return parent / f"{PREFIX}{digest[:8]}"


def is_large(path: Path) -> bool:
    """True for a file system that may hold the states of a model; containers have one of 64 MB."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return found.f_blocks * found.f_frsize >= LEAST_BYTES


class StateDir:
    """A directory of this agent's own, locked while the agent lives.

    Attributes:
      path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for left in path.parent.glob(f"{PREFIX}????????"):  # memory that nobody would give back
            with contextlib.suppress(OSError):
                status = left.lstat()
                age = time.time() - status.st_mtime
                if status.st_uid == os.getuid() and age >= YOUNG_SECONDS:
                    remove_if_left(left)
        path.mkdir(mode=0o700)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes the directory and what is in it; and what lies on the disk for it."""
        shutil.rmtree(self.path, ignore_errors=True)
        scratch.remove(self.path)
        os.close(self._fd)


def remove_if_left(path: Path) -> None:
    """Removes a state directory unless its agent lives.

    Raises:
      OSError: it is not there, or its agent lives.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its agent holds it while it lives
        shutil.rmtree(path, ignore_errors=True)
        scratch.remove(path)
    finally:
        os.close(fd)
