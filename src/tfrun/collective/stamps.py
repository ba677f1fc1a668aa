"""Stamps each collective's bytes with which one it is, so that no two are mixed up.

And where the script stands, for the person who reads that two were about to be.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tfrun.collective.errors import Disagreement
from tfrun.job import unmatched_call

_SAME = struct.Struct("<IIQH")  # number, checksum, size, phase: equal on all workers
_TOLD = struct.Struct("<HI")  # call, line


@dataclass(frozen=True, kw_only=True)
class ScriptPlace:
    """Where a worker's script stands.

    Attributes:
      phase: a position in `unmatched_call.CALLS`; in another one other collectives follow. 0: any.
      call: likewise, for people.
      line: of the script; 0 is not known.
    """

    phase: int = 0
    call: int = 0
    line: int = 0


# One for the process, as the order of its collectives.
_place = ScriptPlace()


def stand(place: ScriptPlace) -> ScriptPlace:
    """Says where the script stands from now on; returns where it stood."""
    global _place
    before, _place = _place, place
    return before


def standing() -> ScriptPlace:
    """Where the script stands."""
    return _place


def checksum_of(kinds: Iterable[tuple[np.dtype, object]]) -> int:
    """The same for the same dtypes and shapes."""
    text = ";".join(f"{dtype.name}{shape}" for dtype, shape in kinds)
    return zlib.crc32(text.encode())


def stamp(number: int, checksum: int, size: int) -> bytes:
    """Of the `number`-th collective, with these dtypes and shapes, of `size` bytes."""
    place = _place
    same = _SAME.pack(number & 0xFFFFFFFF, checksum, size, place.phase)
    return same + _TOLD.pack(place.call, place.line)


def told(mark: bytes) -> tuple[str, str]:
    """What is equal on all workers that do the same, and where the script stands, in words."""
    return mark[: _SAME.size].hex(), unmatched_call.stands(*_TOLD.unpack_from(mark, _SAME.size))


def agree(mine: bytes, theirs: bytes, rank: int) -> None:
    """Raises `Disagreement` unless both stamps are of the same collective."""
    if mine[: _SAME.size] == theirs[: _SAME.size]:
        return
    (number, _, size, phase), (their_number, _, their_size, their_phase) = (
        _SAME.unpack_from(stamp) for stamp in (mine, theirs)
    )
    here, there = (unmatched_call.stands(*_TOLD.unpack_from(s, _SAME.size)) for s in (mine, theirs))
    text = f"worker {rank} is {there}, and this one {here}"
    if phase == their_phase:
        text += (
            f"; it is at its collective {their_number}, of {their_size} bytes, and this one at "
            f"its {number}, of {size} bytes"
        )
        if (number, size) == (their_number, their_size):
            text += ", with other dtypes or shapes"
    raise Disagreement(unmatched_call.marked(text))
