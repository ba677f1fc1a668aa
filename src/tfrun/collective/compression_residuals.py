"""Keeps what compression has rounded off in memory that outlives a worker.

A worker that dies takes its variables with it; the others have the same ones. What it has rounded
off nobody else has, and without it the next step would be another one than in an undisturbed run.
So it stands in a file in the machine's shared memory, as of the step that was done last and as of
the one before: who writes the newer leaves the older as it is. A successor takes what belongs to
the step it goes on from. Where there is none (another machine, a checkpoint from the disk, no room
for the file) nothing has been rounded off.

A step's numbers need no mark that they are complete: a step is done when somebody has its sum, and
before that every worker has written them.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.compress import Compressed
from tfrun.collective.memory_files import allocate

_HEADER_BYTES = 64
_NOTHING = -1


class Residuals:
    """What compression has rounded off of one worker's gradients.

    Args:
      dtype: as what sums travel.
      folder: in the machine's shared memory; None keeps them for this process's life only.
      rank: the worker's.
    """

    def __init__(self, dtype: np.dtype, folder: Path | None, rank: int) -> None:
        self.dtype = dtype
        self._folder, self._rank = folder, rank
        self._open: dict[str, tuple[NDArray, NDArray]] = {}

    def begin(self, name: str, version: int, length: int) -> Compressed:
        """How the next sum travels.

        Args:
          name: of what is summed: letters and digits.
          version: how many times it has been summed, in all rounds.
          length: of it, in numbers.
        """
        if name not in self._open or self._open[name][1].shape[1] != length:
            self._open[name] = self._opened(name, length)
        versions, numbers = self._open[name]
        old, new = version % 2, (version + 1) % 2
        known = version > 0 and versions[old] == version
        versions[new] = version + 1
        before = numbers[old] if known else None
        return Compressed(dtype=self.dtype, before=before, after=numbers[new])

    def _opened(self, name: str, length: int) -> tuple[NDArray, NDArray]:
        size = _HEADER_BYTES + 2 * length * 4
        memory = None if self._folder is None else self._mapped(name, size)
        if memory is None:
            memory = mmap.mmap(-1, size)
            is_new = True
        else:
            is_new = not np.frombuffer(memory, np.int64, 1)[0]
        header = np.frombuffer(memory, np.int64, 3)
        if is_new:
            header[:] = 1, _NOTHING, _NOTHING
        numbers = np.frombuffer(memory, np.float32, 2 * length, _HEADER_BYTES)
        return header[1:], numbers.reshape(2, length)

    def _mapped(self, name: str, size: int) -> mmap.mmap | None:
        assert self._folder is not None
        path = self._folder / f"residual-{self._rank}-{name}"
        try:
            if path.exists() and path.stat().st_size != size:  # of another model
                path.unlink()
            if not path.exists() and not allocate(path, size):
                return None
            with path.open("rb+") as file:
                return mmap.mmap(file.fileno(), size)
        except OSError:
            return None
