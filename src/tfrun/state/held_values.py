"""Values of a script as they were at a time, to be compared and kept."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrun.state import plain_data

_MOST_ITEMS = 20_000


class Held(NamedTuple):
    """A value as it was.

    Attributes:
      value: as JSON.
      arrays: of it, by name.
    """

    value: Any
    arrays: dict[str, NDArray]

    def is_as(self, other: Held | None) -> bool:
        """Whether both are the same, as far as can be told; large arrays only by what they are."""
        if other is None or self.value != other.value:
            return False
        pairs = ((array, other.arrays[key]) for key, array in self.arrays.items())
        return all(a is b or _are_small_and_same(a, b) for a, b in pairs)


def _are_small_and_same(a: NDArray, b: NDArray) -> bool:
    is_small = a.nbytes == b.nbytes <= plain_data.SMALL
    return is_small and (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


def as_now(value: Any, name: str) -> Held | None:
    """As it is now, with arrays by names that begin with `name`; None for what cannot be kept."""
    arrays: dict[str, NDArray] = {}
    try:
        return Held(plain_data.encode(value, arrays, name), arrays)
    except TypeError:
        return None  # a model, a function without a name, an open file


def is_large(value: Any) -> bool:
    """Whether a value is a training's data, and nothing that anybody collects."""
    return _fills(value, [_MOST_ITEMS])


def _fills(value: Any, room: list[int]) -> bool:
    """Whether a value takes more than the room that is left for items; takes it else."""
    room[0] -= 1
    if isinstance(value, np.ndarray):
        return value.nbytes > plain_data.SMALL
    if type(value).__name__ == "EagerTensor":
        return value.dtype.size * (value.shape.num_elements() or 0) > plain_data.SMALL
    if not isinstance(value, list | tuple | dict | set | frozenset | deque):
        return False
    items = value.values() if isinstance(value, dict) else value
    return len(value) > room[0] or any(_fills(item, room) for item in list(items))
