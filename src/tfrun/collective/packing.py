"""Packs many tensors into few arrays, for sums by their dtype, for gathering as bytes."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.buffers import Buffers
from tfrun.collective.stamps import checksum_of

ALIGNMENT = 64  # bytes; TensorFlow takes over without a copy what begins there
LOW_PRECISION = ("float16", "bfloat16")
KEPT_BYTES = 8 << 30  # the largest buffer that is used again


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """In which dtype numbers are added up and travel: those of low precision in float32."""
    return np.dtype(np.float32) if dtype.name in LOW_PRECISION else dtype


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """Where a tensor stands.

    Attributes:
      pack: which array.
      start: at which number of it.
      shape: of the tensor.
      dtype: of the tensor.
    """

    pack: int
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A place for each tensor, and dtype and length of each array.

    Attributes:
      places: by tensor.
      packs: dtype and length of each array.
      compressed: the array that travels compressed; None: all travel as they are.
    """

    places: tuple[TensorPlace, ...]
    packs: tuple[tuple[np.dtype, int], ...]
    compressed: int | None = None

    @functools.cached_property
    def checksum(self) -> int:
        """The same on two workers whose tensors are, and travel the same way."""
        return checksum_of(
            (place.dtype, (place.shape, place.pack == self.compressed)) for place in self.places
        )

    def views(self, packs: Sequence[NDArray]) -> list[NDArray]:
        """The tensors' parts of the arrays, in the dtypes of these."""
        return [packs[p.pack][p.start : p.stop].reshape(p.shape) for p in self.places]


def layout_of(
    tensors: Sequence[NDArray],
    compressed: Collection[int] = (),
    dtypes: Sequence[np.dtype] | None = None,
) -> Layout:
    """Returns the layout of tensors of these shapes and dtypes: one array for each sum's dtype.

    Args:
      tensors: what is summed.
      compressed: those, all float32, that travel compressed: they have an array of their own.
      dtypes: of the sums; None: of `tensors`.
    """
    given = [tensor.dtype for tensor in tensors] if dtypes is None else dtypes
    shapes = tuple([tensor.shape for tensor in tensors])
    return _layout(shapes, tuple(given), frozenset(compressed))


def layout_of_kinds(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[np.dtype, ...]) -> Layout:
    """As `layout_of`, of tensors that are not there yet."""
    return _layout(shapes, dtypes, frozenset())


@functools.lru_cache(maxsize=256)  # each step has the same ones, and a model has hundreds
def _layout(
    shapes: tuple[tuple[int, ...], ...], dtypes: tuple[np.dtype, ...], compressed: frozenset[int]
) -> Layout:
    order: dict[tuple[np.dtype, bool], int] = {}
    lengths: list[int] = []
    places = []
    for i, (shape, kind) in enumerate(zip(shapes, dtypes, strict=True)):
        dtype = sum_dtype(kind)
        pack = order.setdefault((dtype, i in compressed), len(order))
        if pack == len(lengths):
            lengths.append(0)
        places.append(TensorPlace(pack=pack, start=lengths[pack], shape=shape, dtype=kind))
        step = max(1, ALIGNMENT // dtype.itemsize)
        lengths[pack] += -(-math.prod(shape) // step) * step
    packs = tuple((dtype, length) for (dtype, _), length in zip(order, lengths, strict=True))
    marked = next((pack for (_, marked), pack in order.items() if marked), None)
    return Layout(places=tuple(places), packs=packs, compressed=marked)


class Packer:
    """Packs and unpacks, on memory that is used again once nobody refers to it.

    What `unpack` gives lies in that memory. TensorFlow takes it over as it is and holds on to it
    for as long as it needs it, and so do arrays: only then it is written to again.
    """

    def __init__(self) -> None:
        self._buffers = Buffers(largest=KEPT_BYTES)

    def empty(self, layout: Layout) -> list[NDArray]:
        """Returns arrays for packed tensors, with any content."""
        return self.arrays(layout.packs)

    def arrays(self, kinds: Sequence[tuple[np.dtype, int]]) -> list[NDArray]:
        """Returns arrays of these dtypes and lengths, with any content."""
        return [self._buffers.array((length,), dtype) for dtype, length in kinds]

    @staticmethod
    def unpack(packs: Sequence[NDArray], layout: Layout) -> list[NDArray]:
        """Returns the tensors; parts of the arrays, but where their dtype is of low precision."""
        return [
            part.astype(place.dtype, copy=False)
            for part, place in zip(layout.views(packs), layout.places, strict=True)
        ]


class PackingReader:
    """Tensors as the array that they are packed into, without packing them: `duplex_transfer.Own`.

    Attributes:
      copied_bytes: how much `fill` has copied.
    """

    copied_bytes = 0

    def __init__(self, tensors: Sequence[NDArray], layout: Layout, pack: int) -> None:
        self._parts = [
            (place, tensor.reshape(-1))
            for tensor, place in zip(tensors, layout.places, strict=True)
            if place.pack == pack and tensor.size
        ]
        self._starts = [place.start for place, _ in self._parts]

    def fill(self, into: NDArray, start: int) -> None:
        """Copies what stands from `start` on, with zeros between the tensors."""
        at = 0
        for begin, numbers in self._pieces(start, len(into)):
            into[at:begin] = 0
            at = begin + len(numbers)
            into[begin:at] = numbers
        into[at:] = 0
        self.copied_bytes += into.nbytes

    def part(self, start: int, scratch: NDArray) -> NDArray:
        """As many as there is room for in `scratch`: where they stand, if that is in one piece."""
        for _, numbers in self._pieces(start, len(scratch)):
            if len(numbers) == len(scratch) and numbers.dtype == scratch.dtype:
                return numbers
            break
        self.fill(scratch, start)
        return scratch

    def _pieces(self, start: int, count: int) -> Iterator[tuple[int, NDArray]]:
        """What stands from `start` on: at which of `count` numbers, and the tensor's own."""
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        for place, flat in self._parts[first:]:
            if place.start >= start + count:
                return
            begin, stop = max(start, place.start), min(start + count, place.stop)
            if begin < stop:
                yield begin - start, flat[begin - place.start : stop - place.start]


class InPlace:
    """Numbers that stand in one array: `duplex_transfer.Own`."""

    def __init__(self, numbers: NDArray) -> None:
        self._numbers = numbers

    def fill(self, into: NDArray, start: int) -> None:
        into[:] = self.part(start, into)

    def part(self, start: int, scratch: NDArray) -> NDArray:
        return self._numbers[start : start + len(scratch)]


class Blocks:
    """What a gathering moves: a block of bytes for each list of tensors.

    Args:
      dtypes: of a list's tensors, the same in all lists.
      shapes: of each list's tensors.

    Attributes:
      sizes: of the blocks, in bytes.
    """

    def __init__(
        self, dtypes: Sequence[np.dtype], shapes: Sequence[Sequence[tuple[int, ...]]]
    ) -> None:
        self._dtypes, self._shapes = dtypes, shapes
        self._starts = [self._starts_of(own) for own in shapes]
        self.sizes = [starts[-1] for starts in self._starts]

    def fill(self, number: int, block: NDArray[np.uint8], tensors: Sequence[NDArray]) -> None:
        """Copies a list's tensors into its block."""
        for tensor, start in zip(tensors, self._starts[number][:-1], strict=True):
            flat = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
            block[start : start + len(flat)] = flat

    def tensors(self, number: int, block: NDArray[np.uint8]) -> list[NDArray]:
        """A list's tensors; parts of its block."""
        return [
            block[start : start + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for dtype, shape, start in zip(
                self._dtypes, self._shapes[number], self._starts[number], strict=False
            )
        ]

    def _starts_of(self, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        """At which byte of a block each tensor begins, and the block's length."""
        pairs = zip(shapes, self._dtypes, strict=True)
        sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in pairs)
        return [0, *itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
