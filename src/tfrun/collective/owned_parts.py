"""Tensors that have one owner each: packed so that each worker's own stand next to each other."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.packing import Layout, layout_of_kinds


@dataclass(frozen=True, kw_only=True)
class OwnedParts:
    """Where tensors with owners stand.

    Attributes:
      order: the tensors' positions, in the order in which they are packed.
      owners: of the tensors in that order.
      layout: of them, likewise.
    """

    order: tuple[int, ...]
    owners: tuple[int, ...]
    layout: Layout

    @functools.cached_property
    def checksum(self) -> int:
        """The same on two workers whose tensors and owners are."""
        return self.layout.checksum ^ zlib.crc32(repr(self.owners).encode())

    def bounds(self, pack: int, workers: int) -> list[int]:
        """Where each worker's part of an array begins, and the end of the array."""
        found = [self.layout.packs[pack][1]] * (workers + 1)
        for place, owner in reversed(list(zip(self.layout.places, self.owners, strict=True))):
            if place.pack == pack:
                found[owner] = place.start
        for rank in reversed(range(workers)):  # who owns nothing of it
            found[rank] = min(found[rank], found[rank + 1])
        found[0] = 0
        return found

    def unpack(self, pack: int, owner: int, part: NDArray, into: list[NDArray | None]) -> None:
        """Finds a worker's tensors in its part of an array.

        Args:
          pack: which array.
          owner: whose.
          part: the worker's.
          into: gets them at their positions.
        """
        begin: int | None = None
        for i, place, its in zip(self.order, self.layout.places, self.owners, strict=True):
            if place.pack == pack and its == owner:
                begin = place.start if begin is None else begin
                found = part[place.start - begin : place.stop - begin].reshape(place.shape)
                into[i] = found.astype(place.dtype, copy=False)


def owned_parts(
    shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype], owners: Sequence[int]
) -> OwnedParts:
    """The places of tensors, by their owners' ranks."""
    return _owned_parts(tuple(shapes), tuple(dtypes), tuple(owners))


@functools.lru_cache(maxsize=64)  # each step has the same ones
def _owned_parts(
    shapes: tuple[tuple[int, ...], ...], dtypes: tuple[np.dtype, ...], owners: tuple[int, ...]
) -> OwnedParts:
    order = tuple(sorted(range(len(shapes)), key=lambda i: owners[i]))
    layout = layout_of_kinds(tuple(shapes[i] for i in order), tuple(dtypes[i] for i in order))
    return OwnedParts(order=order, owners=tuple(owners[i] for i in order), layout=layout)
