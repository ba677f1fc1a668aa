"""Gradients in half the bytes, with error feedback.

What is rounded off on the way is added to what the same worker sends at the next step, so that it
comes late, and is not lost (Seide et al. 2014; Karimireddy et al. 2019, algorithm 2). In a ring a
worker sends each number of a sum exactly once in the first half of the way: its own, or its own
added to what it has received. It keeps what that one rounding has dropped. All others copy bits,
so that every worker ends with the same ones, and over all steps

    sum of what was applied = sum of the exact sums - sum over the workers of what they now keep
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

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
    """One array on its way.

    Args:
      numbers: float32, this worker's own; `decode` replaces them by the sum.
      compressed: how they travel.

    Attributes:
      codes: what travels.
    """

    def __init__(self, numbers: NDArray, compressed: Compressed) -> None:
        self._numbers, self._compressed = numbers, compressed
        self.codes = np.empty(len(numbers), compressed.dtype)

    def sending(self, begin: int, end: int) -> list[Lazy]:
        """This worker's own numbers, of which each block is encoded when it is sent."""
        ends = [(at, min(at + BLOCK, end)) for at in range(begin, end, BLOCK)]
        return [
            Lazy(self.codes[first:stop], functools.partial(self._encode, first, stop))
            for first, stop in ends
        ]

    def adding(self, start: int) -> Callable[[int, NDArray], None]:
        """Adds what has come to this worker's own numbers, and encodes the sums.

        Args:
          start: the number at which the positions begin that it is called with.
        """

        def add(at: int, came: NDArray) -> None:
            for begin in range(0, len(came), BLOCK):
                part = came[begin : begin + BLOCK]
                self._encode(start + at + begin, start + at + begin + len(part), part)

        return add

    def decode(self) -> None:
        """Replaces the numbers by what has been encoded, here or elsewhere."""
        self._numbers[:] = self.codes

    def _encode(self, begin: int, end: int, came: NDArray | None = None) -> None:
        codes, how = self.codes[begin:end], self._compressed.part(begin, end)
        with np.errstate(all="ignore"):
            total = how.after  # becomes what is rounded off
            total[:] = self._numbers[begin:end]
            for more in (how.before, came):
                if more is not None:
                    np.add(total, more, out=total, dtype=np.float32)
            codes[:] = total
            np.subtract(total, codes, out=total, dtype=np.float32)
            if not np.isfinite(total).all():
                self._saturate(codes, total, self._numbers[begin:end], how.before, came)

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


class Lazy:
    """Bytes that are made when somebody first wants some of them; otherwise a `memoryview`."""

    def __init__(self, memory: NDArray, make: Callable[[], None]) -> None:
        self._bytes = memory.view(np.uint8).data
        self._make: Callable[[], None] | None = make

    def __len__(self) -> int:
        return len(self._bytes)

    def __getitem__(self, part: slice) -> memoryview:
        if self._make is not None:
            self._make()
            self._make = None
        return self._bytes[part]
