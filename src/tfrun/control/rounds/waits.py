"""What a round hears of workers that wait for each other in vain, and what it asks for then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EndsAwaited:
    """The time of `AwaitEnds` has run out."""


@dataclass(frozen=True, kw_only=True)
class Stands:
    """A worker has waited in one collective for some seconds.

    Attributes:
      task: its name.
      number: counts what the workers do together, one by one.
      mark: equal on all workers that do the same.
      where: in words.
    """

    task: str
    number: int
    mark: str
    where: str


@dataclass(frozen=True, kw_only=True)
class AwaitEnds:
    """Feed `EndsAwaited()` in `seconds`: all scripts end, or wait, in one moment, mostly."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class TellEnded:
    """Tell the workers whose scripts run which ones have ended, with `TaskDone.collectives`."""

    tasks: Mapping[str, int | None]


@dataclass(frozen=True, kw_only=True)
class TellParted:
    """Tell the workers, which wait in different collectives, where each is, in words."""

    places: Mapping[str, str]


WaitEvent = EndsAwaited | Stands
WaitAction = AwaitEnds | TellEnded | TellParted
