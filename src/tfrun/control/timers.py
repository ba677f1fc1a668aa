"""The timers of a job: of the round that runs, and of the job whichever round it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tfrun.control.rounds.model import State


class Timers:
    """Calls back later."""

    def __init__(self) -> None:
        self._round: dict[State | str, asyncio.TimerHandle] = {}
        self._job: list[asyncio.TimerHandle] = []

    def later(self, seconds: float, action: Callable[..., None], *values: Any) -> None:
        """Calls back, whichever round it is then, unless the job has ended."""
        self._job.append(asyncio.get_running_loop().call_later(seconds, action, *values))

    def set(self, what: State | str, seconds: float, action: Callable[[], None]) -> None:
        """Calls back in this round; a new timer for something replaces the one before."""
        if earlier := self._round.pop(what, None):
            earlier.cancel()
        self._round[what] = asyncio.get_running_loop().call_later(seconds, action)

    def round_ends(self) -> None:
        """Those of the round are void."""
        for timer in self._round.values():
            timer.cancel()
        self._round.clear()

    def job_ends(self) -> None:
        """All are void."""
        self.round_ends()
        for timer in self._job:
            timer.cancel()
