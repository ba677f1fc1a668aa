"""What data draws between its batches, where others draw from the same generators.

A `PyDataset` draws an order for each epoch, and its hooks may shuffle. The script that runs again
passes by what is done, and its data draws that again; but not what callbacks and steps have drawn
in between, from Python's or numpy's global generators. So it is kept what they held then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfrun.data import global_random
from tfrun.data.global_random import OF_SCRIPT, hold_equal

Known = tuple[int, int, Any]  # see `DrawnOrders.known`


class DrawnOrders:
    """The draws of the data of one call, in their order; made as it begins.

    Attributes:
      known: what a generator held before such a draw, where somebody else had drawn since the one
        before: the number of the draw, that of the generator in `global_random.State`, and what it
        held. 2.5 kB each.
      left: what the newest draw has changed: the generator, and what it held then.
    """

    def __init__(self) -> None:
        self.known: list[Known] = []
        self.left: list[tuple[int, Any]] = []
        self._number = 0  # of the next one
        # By the last one that drew from each generator.
        self._left: dict[int, Any] = dict(enumerate(global_random.take()))
        self._replays = False

    def know(self, known: list[Known]) -> None:
        """Takes over what another process has known, or this script's earlier run."""
        theirs = {number for number, _, _ in known}
        self.known = [*(one for one in self.known if one[0] not in theirs), *known]

    @contextmanager
    def draws(self) -> Iterator[None]:
        """While it lasts the data draws, or may. Called by the main thread."""
        number, self._number = self._number, self._number + 1
        if self._replays:
            give([(which, _as_it_was(held)) for of, which, held in self.known if of == number])
        else:
            self.known = [one for one in self.known if one[0] != number]
        before, self.left = global_random.take(), []
        with global_random.Drawn.now.not_by_batches():
            yield
        for which, (held, after) in enumerate(zip(before, global_random.take(), strict=False)):
            if hold_equal(held, after):
                continue
            goes_on = which in self._left and hold_equal(held, self._left[which])
            self._left[which] = after
            self.left.append((which, after))
            if not (self._replays or goes_on):
                self.known.append((number, which, _smaller(held)))

    @contextmanager
    def replays(self) -> Iterator[None]:
        """While it lasts, what is drawn has been drawn before."""
        self._replays = True
        try:
            yield
        finally:
            self._replays = False


def give(held: list[tuple[int, Any]]) -> None:
    """Has some of the generators go on from what they held: the others stay where they are."""
    state: list[Any] = [None] * (OF_SCRIPT + 1)
    for which, what in held:
        state[which] = what
        if which == OF_SCRIPT and len(now := global_random.take()) > OF_SCRIPT:
            state[which] = {**now[OF_SCRIPT], **what}
    if held:
        global_random.give(tuple(state))


def _smaller(held: Any) -> Any:
    """Of Python's generators: an array of what are hundreds of numbers."""
    if isinstance(held, dict):
        return held
    return [np.asarray(part, np.uint32) if type(part) is tuple else part for part in held]


def _as_it_was(held: Any) -> Any:
    if isinstance(held, dict):
        return held
    if isinstance(held[0], str):  # of numpy
        return tuple(held)
    return tuple(tuple(part.tolist()) if isinstance(part, np.ndarray) else part for part in held)
