"""Bounds the staleness of updates: when the next step may begin. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

AHEAD = 2  # steps for each worker that are scheduled: while one is answered the next one runs


@dataclass(frozen=True, kw_only=True)
class Flight:
    """The steps that were begun and have not ended.

    Attributes:
      begun: for each, how many steps had been applied when it began.
      applied: steps that have ended.
    """

    begun: Mapping[int, int] = field(default_factory=dict)
    applied: int = 0

    def begins(self, number: int) -> Flight:
        return replace(self, begun={**self.begun, number: self.applied})

    def ends(self, number: int) -> Flight:
        rest = {one: at for one, at in self.begun.items() if one != number}
        return replace(self, begun=rest, applied=self.applied + 1)


def may_begin(
    flight: Flight, number: int, *, workers: int, max_staleness: int | None, ring: int
) -> bool:
    """Whether step `number` may begin, whatever the order in which those in flight will end.

    A step's staleness is the number of steps that are applied between its reading the weights and
    its own update: at most those that have ended since it began, and all others in flight.

    Steps begin in the order of their numbers. `max_staleness` is None for no bound, and `ring` is
    how many steps the servers remember (see ps/server_step.py).
    """
    others = flight.begun
    if others and number - min(others) >= ring:
        return False
    if max_staleness is None:
        return len(others) < AHEAD * workers
    worst = max((flight.applied - at for at in others.values()), default=0)
    # Those in flight may all come before the new one, and the new one before each of them.
    fits_others = not others or worst + len(others) <= max_staleness
    return len(others) <= max_staleness and fits_others and len(others) < AHEAD * workers
