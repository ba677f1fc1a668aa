"""A lock on a file for one writer, which the kernel gives back however its holder ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import weakref
from pathlib import Path

from tfrun.job import files

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
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(file)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    return False
                raise
            self._file = file
            return True
        self._file, self.exclusive = file, True
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


def _let_go_in_child() -> None:
    """A child that a script forks shares the lock, and would hold it after its parent's death."""
    for lock in _locks:
        lock.release()


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_let_go_in_child)
