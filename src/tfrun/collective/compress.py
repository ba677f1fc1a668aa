"""Compresses gradients to half the bytes, with error feedback.

What is rounded off on the way is added to what the same worker sends at the next step, so that it
comes late, and is not lost (Seide et al. 2014; Karimireddy et al. 2019, algorithm 2). A worker
encodes each number exactly once: its own, for the one who adds it up, or where that is itself the
sum. It keeps what that one rounding has dropped. All others copy bits, so that every worker ends
with the same ones, and over all steps

    sum of what was applied = sum of the exact sums - sum over the workers of what they now keep

A worker that dies takes its variables with it; the others have the same ones. What it has rounded
off nobody else has, and without it the next step would be another one than in an undisturbed run.
So it stands in a file in the machine's shared memory, as of the step that was done last and as of
the one before: who writes the newer leaves the older as it is. A successor takes what belongs to
the step it goes on from. Where there is none (another machine, a checkpoint from the disk, no room
for the file) nothing has been rounded off.

A step's numbers need no mark that they are complete: a step is done when somebody has its sum, and
before that every worker has written them.

A worker with several replicas rounds their sum, once. So what is rounded off, and with it the bits
of the sums, depends on who holds which replicas; what has been applied in all does not.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfrun.collective.duplex_transfer import Own
from tfrun.collective.memory_files import allocate

FORMATS = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}
BLOCK = 1 << 15  # numbers; what is computed with them stays in a core's cache
_HEADER_BYTES = 64
_NOTHING = -1


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """How some float32 numbers travel.

    Attributes:
      dtype: as what.
      before: what has been rounded off of them so far; None where nothing is known of it.
      after: what is rounded off now; is written to.
    """

    dtype: np.dtype
    before: NDArray | None
    after: NDArray

    def part(self, begin: int, end: int) -> Compressed:
        before = None if self.before is None else self.before[begin:end]
        return Compressed(dtype=self.dtype, before=before, after=self.after[begin:end])


class Coded:
    """This worker's numbers as what travels: `duplex_transfer.Own` of a sum of codes.

    Args:
      owns: the numbers, float32, all of which are added up.
      compressed: how they travel.
    """

    def __init__(self, owns: Sequence[Own], compressed: Compressed) -> None:
        self._owns, self._compressed = owns, compressed

    def fill(self, into: NDArray, start: int) -> None:
        """Encodes the numbers from `start` on."""
        self.add(into, start, ())

    def part(self, start: int, scratch: NDArray) -> NDArray:
        self.fill(scratch, start)
        return scratch

    def add(self, into: NDArray, start: int, others: Sequence[NDArray]) -> None:
        """Encodes the sums of the numbers from `start` on and of what others' codes say."""
        for begin in range(0, len(into), BLOCK):
            end = min(begin + BLOCK, len(into))
            self._encode_block(into[begin:end], start + begin, [o[begin:end] for o in others])

    def _encode_block(self, codes: NDArray, start: int, came: Sequence[NDArray]) -> None:
        how = self._compressed.part(start, start + len(codes))
        more = [*([] if how.before is None else [how.before]), *came]
        with np.errstate(all="ignore"):
            total = how.after  # becomes what is rounded off
            self._fill(total, start)
            for part in more:
                np.add(total, part, out=total, dtype=np.float32)
            codes[:] = total
            np.subtract(total, codes, out=total, dtype=np.float32)
            if not np.isfinite(total).all():
                mine = np.empty(len(codes), np.float32)
                self._fill(mine, start)
                self._saturate(codes, total, [mine, *more])

    def _fill(self, into: NDArray, start: int) -> None:
        self._owns[0].fill(into, start)
        for own in self._owns[1:]:
            np.add(into, own.part(start, np.empty_like(into)), out=into)

    @staticmethod
    def _saturate(codes: NDArray, rest: NDArray, parts: Sequence[NDArray]) -> None:
        """Sends the largest number for what is larger, and keeps the rest of it.

        What is not finite itself stays so, for mixed precision to find, and leaves nothing.
        """
        total = np.zeros(len(codes), np.float32)
        for part in parts:
            np.add(total, part, out=total, dtype=np.float32)
        limit = float(ml_dtypes.finfo(codes.dtype).max)
        codes[:] = np.clip(total, -limit, limit)
        finite = np.isfinite(total)
        codes[~finite] = total[~finite]
        rest[:] = np.where(finite, total - codes.astype(np.float32), 0)


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
        memory = self._mapped(name, size) or mmap.mmap(-1, size)
        header = np.frombuffer(memory, np.int64, 3)
        if not header[0]:  # new memory has zeros
            header[:] = 1, _NOTHING, _NOTHING
        numbers = np.frombuffer(memory, np.float32, 2 * length, _HEADER_BYTES)
        return header[1:], numbers.reshape(2, length)

    def _mapped(self, name: str, size: int) -> mmap.mmap | None:
        if self._folder is None:
            return None
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
