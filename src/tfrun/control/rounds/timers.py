"""The timers of a round: one for each of its states, and for what else has its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable


class Timers:
    """Calls back later; a new timer for something replaces the one before."""

    def __init__(self) -> None:
        self._set: dict[Hashable, asyncio.TimerHandle] = {}

    def set(self, what: Hashable, seconds: float, action: Callable[[], None]) -> None:
        """Has `action` called in `seconds`."""
        if earlier := self._set.pop(what, None):
            earlier.cancel()
        self._set[what] = asyncio.get_running_loop().call_later(seconds, action)

    def clear(self) -> None:
        """No timer is left."""
        for timer in self._set.values():
            timer.cancel()
        self._set.clear()
