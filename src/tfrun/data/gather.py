"""Many pieces of files, copied into a file in memory by one call to the system.

A read of 3 KB takes 2 us of which 1.5 are the call's own, and TensorFlow's reader of records wants
a file. The pieces are slices of memory maps, but only the kernel touches their pages: a file that
has become shorter is an error of `writev`, where a process that touches such a page is killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

PIECES = 1024  # IOV_MAX of Linux
KEPT = 16 << 20  # bytes; a larger file is given back after use


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
    """A file in memory that holds some pieces one after the other; for one thread at a time.

    Attributes:
      path: under which it can be opened, in this process.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("tfrun-records", os.MFD_CLOEXEC)
            self.path, self._has_name = f"/proc/self/fd/{self._file}", False
        else:
            self._file, self.path = tempfile.mkstemp()
            self._has_name = True
        self._map: mmap.mmap | None = None

    def fill(self, pieces: Sequence[memoryview]) -> mmap.mmap:
        """Replaces the content; returns a map of the file, which may be longer than the content.

        Raises:
          Unreadable: where a piece cannot be read.
        """
        os.lseek(self._file, 0, os.SEEK_SET)
        for begin in range(0, len(pieces), PIECES):
            self._write(pieces, begin)
        size = os.lseek(self._file, 0, os.SEEK_CUR)
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
        if self._has_name:
            Path(self.path).unlink(missing_ok=True)

    def _write(self, pieces: Sequence[memoryview], begin: int) -> None:
        """Writes up to `PIECES` pieces; a call may write less than it was given."""
        left = list(pieces[begin : begin + PIECES])
        expected = sum(map(len, left))
        while expected:
            try:
                written = os.writev(self._file, left)
            except OSError as error:
                raise Unreadable(begin, error) from None
            expected -= written
            if expected:  # it stopped at a piece that it could not read, or at 2 GB
                done = 0
                while len(left[done]) <= written:
                    written -= len(left[done])
                    done += 1
                left, begin = [left[done][written:], *left[done + 1 :]], begin + done
