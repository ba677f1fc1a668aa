"""What travels before each collective's bytes: which one it is, so that no two are mixed up."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np

from tfrun.collective.errors import Disagreement

_FORMAT = struct.Struct("<IIQ")


def checksum_of(kinds: Iterable[tuple[np.dtype, object]]) -> int:
    """The same for the same dtypes and shapes."""
    text = ";".join(f"{dtype.name}{shape}" for dtype, shape in kinds)
    return zlib.crc32(text.encode())


def stamp(number: int, checksum: int, size: int) -> bytes:
    """Of the `number`-th collective, with these dtypes and shapes, of `size` bytes."""
    return _FORMAT.pack(number & 0xFFFFFFFF, checksum, size)


def agree(mine: bytes, theirs: bytes, rank: int) -> None:
    """Raises `Disagreement` unless both stamps are equal."""
    if mine == theirs:
        return
    (number, _, size), (their_number, _, their_size) = map(_FORMAT.unpack, (mine, theirs))
    raise Disagreement(
        f"workers do different things: rank {rank} is at its collective {their_number}, of "
        f"{their_size} bytes, and this worker at its {number}, of {size} bytes"
        + (", with other dtypes or shapes" if (number, size) == (their_number, their_size) else "")
        + "; every worker has to call the same reductions in the same order"
    )
