"""Decides when a checkpoint is due: after some steps, some seconds, or each epoch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tfrun.checkpoint.errors import bad_interval

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# No more digits than any training needs: int() refuses some thousands.
_STEPS = re.compile(r"\d{1,9}", re.ASCII)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smh])", re.ASCII)


class Moment(NamedTuple):
    """When something happened.

    Attributes:
      now: seconds on a clock that does not go backwards.
      step: steps that the job had completed.
    """

    now: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Every:
    """How often to write a checkpoint; exactly one of the three is set.

    Attributes:
      steps: after so many steps.
      seconds: at the first step after so many seconds.
      epoch: after each epoch.
    """

    steps: int | None = None
    seconds: float | None = None
    epoch: bool = False

    def __post_init__(self) -> None:
        assert (self.steps is not None) + (self.seconds is not None) + self.epoch == 1
        assert self.steps is None or self.steps > 0
        assert self.seconds is None or self.seconds > 0


def parse(text: str) -> Every:
    """Returns what `--checkpoint-every` says: "500" (steps), "600s", "10m", "2h" or "epoch".

    Raises:
      UsageError: TFRUN-105.
    """
    stated = text.strip().lower()
    if stated == "epoch":
        return Every(epoch=True)
    if _STEPS.fullmatch(stated) and int(stated):
        return Every(steps=int(stated))
    if (match := _TIME.fullmatch(stated)) and float(match[1]):
        return Every(seconds=float(match[1]) * _SECONDS[match[2]])
    raise bad_interval(text)


def due(every: Every, *, at: Moment, epoch_ended: bool, last: Moment) -> bool:
    """Returns whether a checkpoint is to be written now.

    Args:
      every: how often.
      at: now, a step has just been completed.
      epoch_ended: this step was the last of its epoch.
      last: when the last checkpoint was handed to the writer; at first, where the job began. It
        lies ahead when the job went back, and then counts for nothing.
    """
    if at.step == last.step:
        return False
    if every.steps is not None:
        return at.step < last.step or at.step - last.step >= every.steps
    if every.seconds is not None:
        return at.now - last.now >= every.seconds
    return epoch_ended
