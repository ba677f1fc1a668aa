"""Decides when the next snapshot is due."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.005  # of the time, by default
SHARED_SHARE = 0.02  # where only a snapshot has all of the state


class Interval:
    """Says when the next snapshot is due.

    Args:
      steps: after so many steps; None to go by time.
      seconds: after so many seconds; None to let all snapshots cost `share`.
      clock: seconds that only grow.
      share: of the time, for all snapshots, where they go by that.
    """

    def __init__(
        self,
        steps: int | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        share: float = SHARE,
    ) -> None:
        self._share = share
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
            self._wait = max(1.0, cost / self._share)


def interval(text: str, *, shared: bool = False) -> Interval:
    """Reads `WorkerSettings.snapshots`: "100" steps, "30s" seconds, "0" never, "auto".

    Args:
      text: see there.
      shared: each worker has some of the state for itself: without a snapshot it goes with it.
    """
    if text == "auto":
        return Interval(share=SHARED_SHARE if shared else SHARE)
    if text.endswith("s"):
        return Interval(seconds=float(text[:-1]))
    return Interval(steps=int(text))
