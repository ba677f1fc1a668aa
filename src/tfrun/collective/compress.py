"""Compresses gradients to half the bytes, with error feedback.

What is rounded off on the way is added to what the same worker sends at the next step, so that it
comes late, and is not lost (Seide et al. 2014; Karimireddy et al. 2019, algorithm 2). In a ring a
worker sends each number of a sum exactly once in the first half of the way: its own, or its own
added to what it has received. It keeps what that one rounding has dropped. All others copy bits,
so that every worker ends with the same ones, and over all steps

    sum of what was applied = sum of the exact sums - sum over the workers of what they now keep
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfrun.collective.duplex_transfer import Own

FORMATS = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}
BLOCK = 1 << 15  # numbers; what is computed with them stays in a core's cache


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
    """This worker's numbers as what travels: `pump.Own` of a sum of codes.

    Args:
      own: the numbers, float32.
      compressed: how they travel.
    """

    def __init__(self, own: Own, compressed: Compressed) -> None:
        self._own, self._compressed = own, compressed

    def fill(self, into: NDArray, start: int) -> None:
        """Encodes the numbers from `start` on."""
        self._encode(into, start, None)

    def add(self, into: NDArray, start: int, theirs: NDArray) -> None:
        """Encodes the sums of the numbers from `start` on and of what others' codes say."""
        self._encode(into, start, theirs)

    def _encode(self, into: NDArray, start: int, came: NDArray | None) -> None:
        for begin in range(0, len(into), BLOCK):
            end = min(begin + BLOCK, len(into))
            part = None if came is None else came[begin:end]
            self._encode_block(into[begin:end], start + begin, part)

    def _encode_block(self, codes: NDArray, start: int, came: NDArray | None) -> None:
        how = self._compressed.part(start, start + len(codes))
        with np.errstate(all="ignore"):
            total = how.after  # becomes what is rounded off
            self._own.fill(total, start)
            for more in (how.before, came):
                if more is not None:
                    np.add(total, more, out=total, dtype=np.float32)
            codes[:] = total
            np.subtract(total, codes, out=total, dtype=np.float32)
            if not np.isfinite(total).all():
                mine = np.empty(len(codes), np.float32)
                self._own.fill(mine, start)
                self._saturate(codes, total, mine, how.before, came)

    @staticmethod
    def _saturate(codes: NDArray, rest: NDArray, *parts: NDArray | None) -> None:
        """Sends the largest number for what is larger, and keeps the rest of it.

        What is not finite itself stays so, for mixed precision to find, and leaves nothing.
        """
        total = np.zeros(len(codes), np.float32)
        for part in parts:
            if part is not None:
                np.add(total, part, out=total, dtype=np.float32)
        limit = float(ml_dtypes.finfo(codes.dtype).max)
        codes[:] = np.clip(total, -limit, limit)
        finite = np.isfinite(total)
        codes[~finite] = total[~finite]
        rest[:] = np.where(finite, total - codes.astype(np.float32), 0)
