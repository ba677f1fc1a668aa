"""Copies many pieces of memory into a file in memory by one call to the system.

A read of 3 KB takes 2 us of which 1.5 are the call's own. The pieces are parts of memory maps, but
only the kernel touches their pages: a file that has become shorter is an error of `writev`, where a
process that touches such a page is killed.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PIECES = 1024  # IOV_MAX of Linux
KEPT = 16 << 20  # bytes; a larger file is given back after use
# malloc.c of glibc: a freed block larger than DEFAULT_MMAP_THRESHOLD_MAX, 32 MB, changes nothing.
_LARGEST_LEARNED = 31 << 20

# `os.writev` would want a Python object for each piece, which takes longer than the copying.
_writev = ctypes.CDLL(None, use_errno=True).writev
_writev.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
_writev.restype = ctypes.c_ssize_t


def keep_freed_memory() -> None:
    """Has malloc keep what is freed, up to 62 MB, instead of giving it back to the system.

    The strings of a group of records are freed all at once. They are often the end of the heap,
    which glibc then gives back, and the next group gets it again page by page: 3 us a record where
    reading one takes 1.3. glibc learns from the largest block that was ever freed how much to
    keep (mallopt(3), M_MMAP_THRESHOLD, "dynamic"); nobody touches this one. Other C libraries take
    no notice.
    """
    np.empty(_LARGEST_LEARNED, np.uint8)


class Unreadable(Exception):
    """A piece cannot be read.

    Attributes:
      piece: its number.
      error: the system's error.
    """

    def __init__(self, piece: int, error: OSError) -> None:
        super().__init__(piece, error)
        self.piece, self.error = piece, error


class Gathered:
    """A file in memory that holds some pieces one after the other; for one thread at a time."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("tfrun-records", os.MFD_CLOEXEC)
        else:
            self._file, path = tempfile.mkstemp()
            Path(path).unlink()
        self._map: mmap.mmap | None = None

    def fill(self, addresses: NDArray[np.uintp], sizes: NDArray[np.int64]) -> mmap.mmap:
        """Replaces the content; returns a map of the file, which may be longer than the content.

        Args:
          addresses: where each piece is in this process's memory, shape [pieces].
          sizes: bytes of each piece, shape [pieces].

        Raises:
          Unreadable: where a piece cannot be read.
        """
        os.lseek(self._file, 0, os.SEEK_SET)
        # struct iovec of POSIX: an address and a size, each as wide as an address.
        pieces = np.stack([addresses, sizes.astype(np.uintp)], axis=1)
        for begin in range(0, len(pieces), PIECES):
            self._write(pieces[begin : begin + PIECES], begin)
        size = int(sizes.sum())
        if self._map is None or len(self._map) < size:
            if self._map is not None:
                self._map.close()
            os.ftruncate(self._file, max(size, mmap.PAGESIZE))
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        return self._map

    @property
    def is_large(self) -> bool:
        """Whether it holds more than is worth keeping."""
        return self._map is not None and len(self._map) > KEPT

    def __del__(self) -> None:
        os.close(self._file)

    def _write(self, pieces: NDArray[np.uintp], first: int) -> None:
        """Writes up to `PIECES` pieces; a call may write less than it was given."""
        ends = np.cumsum(pieces[:, 1].astype(np.int64))
        done, total = 0, int(ends[-1])
        while done < total:
            written = _writev(self._file, pieces.ctypes.data, len(pieces))
            if written < 0:
                if (code := ctypes.get_errno()) == errno.EINTR:
                    continue
                raise Unreadable(first, OSError(code, os.strerror(code)))
            done += written
            if done < total:  # it stopped at a piece that it could not read, or at 2 GB
                whole = int(np.searchsorted(ends, done, side="right"))
                pieces, ends, first = pieces[whole:].copy(), ends[whole:], first + whole
                left = int(ends[0]) - done
                pieces[0] += np.array([int(pieces[0, 1]) - left, 0], np.uintp)
                pieces[0, 1] = left
