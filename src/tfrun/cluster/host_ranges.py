"""Ranges in host names, as Slurm writes them: n[1-11], n[01-03,07], rack[1-2]-n[1-4]."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

MAX_HOSTS = 65535  # of one list: more is a slip of the finger

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def split_list(text: str) -> list[str]:
    """Splits at the commas that stand outside of brackets; white space around parts goes."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def expand(name: str) -> list[str]:
    """Returns the names that `name` stands for, in order; itself when it has no range.

    A lower end with leading zeros gives all numbers its width, as with Slurm.

    Raises:
      ValueError: what is wrong with it, as the end of a sentence.
    """
    texts: list[str] = []
    ranges: list[range] = []
    widths: list[list[str]] = []
    rest = name
    while rest:
        before, bracket, rest = rest.partition("[")
        if "]" in before:
            raise ValueError("has a closing bracket without an opening one")
        texts.append(before)
        if not bracket:
            break
        inside, closing, rest = rest.partition("]")
        if not closing:
            raise ValueError("has no closing bracket")
        widths.append([])
        for low, high in _parts(inside):
            ranges.append(range(int(low), int(high) + 1))
            _check_size(sum(len(r) for r in ranges))
            width = len(low) if low.startswith("0") else 0
            widths[-1] += [str(number).zfill(width) for number in ranges[-1]]
    if len(texts) == len(widths):
        texts.append("")
    count = 1
    for numbers in widths:
        count *= len(numbers)
        _check_size(count)
    return [
        "".join(itertools.chain.from_iterable(zip(texts, (*numbers, ""), strict=True)))
        for numbers in itertools.product(*widths)
    ]


def _parts(inside: str) -> Iterator[tuple[str, str]]:
    for part in inside.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"has {part.strip()!r:.40} in a range, which is not N or N-M")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            raise ValueError(f"has the range {low}-{high}, which runs backwards")
        yield low, high


def _check_size(count: int) -> None:
    if count > MAX_HOSTS:
        raise ValueError(f"stands for more than {MAX_HOSTS} hosts")
