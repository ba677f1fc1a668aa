"""Opens and replaces files without following what another user has put in their place.

He could leave a symbolic link under the name of a log that is about to be made, and have it
written over a file of ours; or a pipe, which would be waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def opener(path: str | os.PathLike[str], flags: int) -> int:
    """For `open(…, opener=opener)`: no link, and nothing that would be waited for.

    Raises:
      OSError: it is one of these, or cannot be opened.
    """
    # Not blocking: a pipe would be waited for.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "it is a symbolic link", str(path)) from None
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "it is not a regular file", str(path)) from None
        raise
    return _no_pipe(fd, path)


def _no_pipe(fd: int, path: str | os.PathLike[str]) -> int:
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENXIO, "it is not a regular file", str(path))
    return fd


def to_read(path: Path) -> BinaryIO:
    """Opens a file to read; a pipe in its place is not waited for.

    Raises:
      OSError: it is one, or cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(_no_pipe(fd, path), "rb")


def read(path: Path) -> bytes:
    """Returns a file's content. Raises as `to_read`."""
    with to_read(path) as file:
        return file.read()


def append_to(path: Path) -> BinaryIO:
    """Opens a file to append to; it is made if it is not there. Not buffered.

    Raises:
      OSError: as `opener`.
    """
    return os.fdopen(opener(path, APPEND), "ab", buffering=0)


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yields a hidden path beside `target`: what is written there replaces it, or nothing does.

    Raises:
      OSError: it cannot be replaced, and is as before.
    """
    # Not by the process's number, which another container that sees the directory may have too.
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_private(target: Path, text: str) -> None:
    """Writes a file, whole or not at all, that only this user can read.

    Raises:
      OSError: it cannot be written, and is as before.
    """
    with whole(target) as temporary:
        # O_EXCL: nobody else has opened it before it was ours alone.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
