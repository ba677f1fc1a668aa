"""Packs each worker's tensors into one block of bytes, for gathering."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.packing import ALIGNMENT

Shape = tuple[int, ...]


class Blocks:
    """A block for each worker, into which all its tensors are copied.

    Args:
      dtypes: of the tensors, the same on all workers.
      shapes: of each worker's tensors, by rank.

    Attributes:
      bytes: the blocks, by rank.
      size: bytes of all of them.
    """

    def __init__(self, dtypes: Sequence[np.dtype], shapes: Sequence[Sequence[Shape]]) -> None:
        self._dtypes, self._shapes = dtypes, shapes
        self._starts = [self._starts_of(worker) for worker in shapes]
        self.bytes = [np.empty(starts[-1], np.uint8) for starts in self._starts]
        self.size = sum(len(block) for block in self.bytes)

    def fill(self, rank: int, tensors: Sequence[NDArray]) -> None:
        """Copies a worker's tensors into its block."""
        for tensor, start in zip(tensors, self._starts[rank][:-1], strict=True):
            flat = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
            self.bytes[rank][start : start + len(flat)] = flat

    def tensors(self) -> list[list[NDArray]]:
        """For each tensor the workers' own, by rank; parts of the blocks."""
        return [
            [self._tensor(rank, i) for rank in range(len(self.bytes))]
            for i in range(len(self._dtypes))
        ]

    def _tensor(self, rank: int, i: int) -> NDArray:
        dtype, shape, start = self._dtypes[i], self._shapes[rank][i], self._starts[rank][i]
        size = math.prod(shape) * dtype.itemsize
        return self.bytes[rank][start : start + size].view(dtype).reshape(shape)

    def _starts_of(self, shapes: Sequence[Shape]) -> list[int]:
        """At which byte of a block each tensor begins, and the block's length."""
        starts = [0]
        for shape, dtype in zip(shapes, self._dtypes, strict=True):
            size = math.prod(shape) * dtype.itemsize
            starts.append(starts[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        return starts
