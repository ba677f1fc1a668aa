"""Locks for one writer, and one job in a directory: two would mix what they write.

The kernel gives a lock back however its holder ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from tfrun.job import files
from tfrun.job.errors import UsageError

# File systems without locks (some network and FUSE mounts) say so with one of these.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class WriterLock:
    """An exclusive lock on `path`, which is made if it is not there.

    Attributes:
      exclusive: this process holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.exclusive = False
        _locks.add(self)

    def acquire(self) -> bool:
        """Returns whether this process may write; does not wait.

        On a file system without locks the answer is yes, and `exclusive` stays False: nobody can
        know whether there is another writer.

        Raises:
          OSError: the file cannot be made.
        """
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.exclusive = True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(file)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    return False
                raise
        self._file = file
        return True

    def release(self) -> None:
        """Lets another process write."""
        if self._file is not None:
            os.close(self._file)
        self._file, self.exclusive = None, False

    def __del__(self) -> None:
        self.release()


def say_who(path: Path, more: str = "") -> None:
    """Writes into a lock's file, for people, which process holds it."""
    # On a full disk it is not told who holds it.
    with contextlib.suppress(OSError), open(path, "w", opener=files.opener) as file:
        file.write(f"process {os.getpid()} on {socket.gethostname()}{more}\n")


def who_holds(path: Path) -> str:
    """Returns what `say_who` has written; "" where nobody has, or it cannot be read."""
    try:
        return files.read(path).decode(errors="replace").strip()[:200]
    except OSError:
        return ""


@contextlib.contextmanager
def held(
    path: Path, task: str = "", *, what: str = "run directory", where: str = "--run-dir"
) -> Iterator[None]:
    """Holds a directory for this process's job.

    Args:
      path: the directory.
      task: of a cluster that others have started, whose tasks may share a run directory.
      what: what it is.
      where: the option that names it.

    Raises:
      UsageError: TFRUN-110, when a job uses it.
    """
    file = path / (f".lock-{task}" if task else ".lock")
    lock = WriterLock(file)
    if not lock.acquire():
        raise UsageError(
            "TFRUN-110",
            f"the {what} {str(path)!r} is in use by {who_holds(file) or 'another job'}",
            where=where,
            fix="Name another directory, or end that job: tfrun stop, with its run directory",
        )
    try:
        say_who(file, time.strftime(" since %Y-%m-%d %H:%M:%S"))
        yield
    finally:
        lock.release()


def _let_go_in_child() -> None:
    """A child that a script forks shares the lock, and would hold it after its parent's death."""
    for lock in _locks:
        lock.release()


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_let_go_in_child)
