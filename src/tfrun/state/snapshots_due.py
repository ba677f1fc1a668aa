"""Decides when the next snapshot is due."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.005  # of the time, by default


class Interval:
    """Says when the next snapshot is due.

    Args:
      steps: after so many steps; None to go by time.
      seconds: after so many seconds; None to let all snapshots cost under one percent.
      clock: seconds that only grow.
    """

    def __init__(
        self,
        steps: int | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps, self._seconds, self._clock = steps, seconds, clock
        self._since, self._last, self._wait = 0, clock(), 1.0 if seconds is None else seconds

    def due(self, steps: int = 1) -> bool:
        """Called after each step, or after some that were made together."""
        self._since += steps
        if self._steps is not None:
            return 0 < self._steps <= self._since
        return self._clock() - self._last >= self._wait

    def done(self, cost: float) -> None:
        """A snapshot has been written, in `cost` seconds."""
        self._since, self._last = 0, self._clock()
        if self._seconds is None:
            self._wait = max(1.0, cost / SHARE)


def interval(text: str) -> Interval:
    """Reads `WorkerSettings.snapshots`: "100" steps, "30s" seconds, "0" never, "auto"."""
    if text == "auto":
        return Interval()
    if text.endswith("s"):
        return Interval(seconds=float(text[:-1]))
    return Interval(steps=int(text))
