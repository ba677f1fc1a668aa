"""Where a worker's replicas hand in what is summed, in each of several traces of a function.

A function is traced for each size of a piece, and replicas of one step may have pieces of different
sizes: what they hand in belongs together all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any


class Place:
    """Where replicas hand in: the same one in each trace of a function.

    Args:
      name: tells it from others.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: dict[str, Any] = {}

    def get(self, what: str, make: Callable[[], Any]) -> Any:
        """What all traces have there; made by the first of them."""
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]


class Places:
    """Where replicas hand in, in all traces of one function.

    A function that it calls may have been traced before, and is not each time: places are known by
    what is handed in there, and numbered among those alike.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Place] = {}
        self._next = Counter[str]()

    def begin(self) -> None:
        """Another trace begins."""
        self._next.clear()

    def next(self, kind: str) -> Place:
        """The next place of a kind."""
        key = kind, self._next[kind]
        self._next[kind] += 1
        return self._known.setdefault(key, Place(f"{kind}, number {key[1]}"))
