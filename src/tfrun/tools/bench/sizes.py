"""Reads sizes as people write them, and decides how often each is measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfrun.job.errors import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST = 4 << 30  # bytes
CLEARLY = 0.95  # of the usual one's time; what is closer is noise
_VOLUME = 256 << 20  # bytes that a size may move in all


def parse_sizes(text: str, *, where: str) -> tuple[int, ...]:
    """Reads "64K,1M,100M" as bytes, in rising order.

    Raises:
      UsageError: TFRUN-105 where one is no size, or is smaller than a float32 or over 4 GiB.
    """
    return tuple(sorted({_size(word.strip(), where) for word in text.split(",")}))


def _size(word: str, where: str) -> int:
    digits, unit = (word[:-1], word[-1].upper()) if word[-1:].isalpha() else (word, "")
    if digits.isascii() and digits.isdecimal() and len(digits) < 12 and unit in _UNITS:
        size = int(digits) * _UNITS[unit]
        if 4 <= size <= MOST:
            return size
    raise UsageError(
        "TFRUN-105",
        f"{word!r:.60} is not a size",
        where=where,
        expected="sizes from 4 to 4G bytes, such as 64K,1M,100M",
    )


def times(size: int) -> int:
    """How often an all-reduce of `size` bytes is timed: on every worker the same."""
    return max(5, min(100, _VOLUME // size))


def written(size: int) -> str:
    """A size as a person reads it."""
    for unit in ("G", "M", "K"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:g} {unit}iB"
    return f"{size} B"


def switch_point(measured: Sequence[tuple[int, float, float]]) -> int:
    """Up to how many bytes the second of two ways is the faster one; 0 where it never is.

    `measured` has sizes, the smallest first, with the seconds of either way.
    """
    found = 0
    for size, first, second in measured:
        if second > first:
            break
        found = size
    return found


def best_pack(seconds: Mapping[int, float], *, usual: int) -> int:
    """The size of packs that is fastest; the usual one unless another one is clearly so.

    `seconds` of each size, in bytes; the usual one is among them.
    """
    best = min(seconds, key=lambda size: seconds[size])
    return best if seconds[best] < CLEARLY * seconds[usual] else usual
