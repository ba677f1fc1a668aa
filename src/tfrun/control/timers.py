"""The timers of a round: one for each of its states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tfrun.control.round_terms import State


class Timers:
    """Calls back later; a new timer for a state replaces the one before."""

    def __init__(self) -> None:
        self._set: dict[State, asyncio.TimerHandle] = {}

    def set(self, state: State, seconds: float, action: Callable[[], None]) -> None:
        """Has `action` called in `seconds`."""
        if earlier := self._set.pop(state, None):
            earlier.cancel()
        self._set[state] = asyncio.get_running_loop().call_later(seconds, action)

    def clear(self) -> None:
        """No timer is left."""
        for timer in self._set.values():
            timer.cancel()
        self._set.clear()
