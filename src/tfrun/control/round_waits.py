"""What a round hears of workers that wait for each other in vain, and what it asks for then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EndsAwaited:
    """The time of `AwaitEnds` has run out."""


@dataclass(frozen=True, kw_only=True)
class AwaitEnds:
    """Feed `EndsAwaited()` in `seconds`: all scripts end in one moment, mostly."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class TellEnded:
    """Tell the workers whose scripts run which ones have ended, with `TaskDone.collectives`."""

    tasks: Mapping[str, int | None]
