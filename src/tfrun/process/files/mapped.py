"""Memory that is mapped from a file, as `np.memmap` does: written after the file was closed.

A version that is mapped is whole when what is mapped has been flushed, unmapped or let go of, or
when its writer looks at it by its name.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tfrun.process.files.versions import Version, opened_as

# What NumPy has written the head of, and maps next, by its path.
_begun = dict[str, Version]()
Opener = Callable[[str, int], int]


class _Head(threading.local):
    """What NumPy has read the head of in this thread, and maps next, by its path."""

    path, fd = "", -1


_head = _Head()


class Mapped(mmap.mmap):
    """`mmap.mmap`, which knows whether it maps a version."""

    _of: Version | None = None

    def __new__(
        cls,
        fileno: int,
        length: int,
        flags: int = mmap.MAP_SHARED,
        prot: int = mmap.PROT_WRITE | mmap.PROT_READ,
        access: int = mmap.ACCESS_DEFAULT,
        offset: int = 0,
        **options: Any,
    ) -> Mapped:
        made = super().__new__(cls, fileno, length, flags, prot, access, offset, **options)
        writes = access in (mmap.ACCESS_DEFAULT, mmap.ACCESS_WRITE)
        shared = flags & mmap.MAP_SHARED and prot & mmap.PROT_WRITE
        if fileno >= 0 and writes and shared and (version := _mapped_by(fileno)):
            version.is_mapped()
            made._of = version
            if _begun.get(version.mine.path) is version:  # it has waited for this mapping
                del _begun[version.mine.path]
                version.is_unmapped()
        return made

    def flush(self, *args: Any) -> None:
        super().flush(*args)
        self._done()

    def close(self) -> None:
        super().close()
        self._done()

    def __del__(self) -> None:
        self._done()

    def _done(self) -> None:
        of, self._of = self._of, None
        if of is not None:
            of.is_unmapped()


def begun(version: Version, frame: FrameType) -> None:
    """Keeps a version's name from it until it is mapped, if `np.lib.format.open_memmap` writes it.

    That writes the head, closes the file, and opens it once more to map it.
    """
    if frame.f_code.co_name == "open_memmap":
        version.is_mapped()
        _begun[version.mine.path] = version


def reads(path: Callable[[], str], file: Any, frame: FrameType) -> None:
    """Keeps a file whose head `np.lib.format.open_memmap` reads until it maps it, by its path.

    Another worker's may have the name by then: it would be mapped with this one's shape.
    """
    if frame.f_code.co_name == "open_memmap":
        if _head.path:
            os.close(_head.fd)
        _head.path, _head.fd = "", -1
        if wanted := path():
            _head.path, _head.fd = wanted, os.dup(file.fileno())


def with_its_head(path: Callable[[], str], frame: FrameType) -> Opener | None:
    """Opens the file whose head was read, where another one has its name; None for the path.

    Args:
      path: tells which; it is not asked where no head was read.
      frame: who opens it. `open_memmap` maps it by `np.memmap`; if that does not come, as for
        objects, whoever opens the path later wants what has the name then.
    """
    by = frame.f_back
    if not _head.path or by is None or by.f_code.co_name != "open_memmap":
        return None
    wanted = path()
    if wanted != _head.path:
        return None
    head, _head.path = _head.fd, ""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(head), os.stat(wanted)):  # noqa: PTH116
            os.close(head)
            return None

    def opener(_: str, flags: int) -> int:
        try:
            return os.open(f"/proc/self/fd/{head}", flags)
        finally:
            os.close(head)

    return opener


def goes_on(path: Callable[[], str], mode: str) -> Version | None:
    """The version to be opened instead of a path, by one who wants to go on with its writing.

    Args:
      path: tells which; it is not asked where nothing is begun.
      mode: that of `open`.
    """
    version = _begun.get(path()) if _begun and mode in ("r+b", "rb+") else None
    return version if version is not None and version.waits else None


def _mapped_by(fileno: int) -> Version | None:
    if (version := opened_as(fileno)) or not _begun:
        return version
    found, waiting = os.fstat(fileno), [one for one in list(_begun.values()) if one.waits]
    return next((one for one in waiting if os.path.samestat(found, one.stat())), None)
