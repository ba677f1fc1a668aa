"""Sizes as people write them, and how often each is measured. Pure."""

from __future__ import annotations

from tfrun.job.errors import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST = 4 << 30  # bytes
_VOLUME = 256 << 20  # bytes that a size may move in all


def parse_sizes(text: str, *, where: str) -> tuple[int, ...]:
    """Reads "64K,1M,100M" as bytes, in rising order.

    Args:
      text: the sizes.
      where: the option that states them.

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
        f"{word!r:.60} is no size",
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
