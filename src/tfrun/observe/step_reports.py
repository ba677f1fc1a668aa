"""Reads a worker's report of its steps. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrun.job.reports import StepsMade
from tfrun.observe.time_series import NO_NUMBERS, mean, number, rounded

EVENT = "progress"  # sums up many workers' reports of that kind
PARTS = ("input", "compute", "communication", "other")
MAX_LOGS = 32

Split = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A worker's last report.

    Attributes:
      time: when it came, in seconds since the epoch.
      epoch, in_epoch, step: where the training is: the epoch, from 0; steps of it, and of the
        whole training, that are done.
      steps: done since the report before.
      seconds: that they took.
      split: the seconds of one step in each of `PARTS`; None where unknown.
      network_seconds: for which one step's sending was held up by the network; None where nobody
        knows, or nothing is sent to another machine.
      network_to: the address that this was sent to.
      rss: bytes of memory.
      cpu: processors in use.
      gpu: bytes of the GPUs' memory; None without any.
      logs: loss and metrics, of the chief.
      aside: seconds since the report before that were no part of a step, by their kind.
    """

    time: float
    epoch: int
    in_epoch: int
    step: int
    steps: int
    seconds: float
    split: Split
    rss: int
    cpu: float
    gpu: int | None = None
    network_seconds: float | None = None
    network_to: str = ""
    logs: Mapping[str, Any] = field(default_factory=dict)
    aside: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def step_seconds(self) -> float | None:
        """How long a step took, with what comes between two."""
        return rounded(self.seconds / self.steps) if self.steps else None

    @functools.cached_property
    def own_seconds(self) -> float | None:
        """How long this worker itself took for a step: what it did not wait for others.

        Its own sending through a narrow network is a part of that.
        """
        whole = self.step_seconds
        if whole is None:
            return None
        return rounded(max(0.0, whole - (self.waited or 0.0) + (self.network_seconds or 0.0)))

    @property
    def waited(self) -> float | None:
        """Seconds of a step that were spent on communication."""
        return self.split.get("communication")


def read(time: float, report: StepsMade) -> Numbers | None:
    """Reads a report; None for one that holds other things than numbers.

    Args:
      time: seconds since the epoch.
      report: what a worker says; a user's process may say anything.
    """
    seconds, steps = number(report.seconds), report.steps
    if seconds is None or len(report.split) != len(PARTS):
        return None
    parts = dict(zip(PARTS, map(number, report.split), strict=True))
    each = {k: None if v is None or not steps else rounded(v / steps) for k, v in parts.items()}
    network = number(report.network)
    if network is not None and steps:  # what backpropagation has hidden holds nobody up
        network = rounded(max(0.0, min(network / steps, each["communication"] or 0.0)))
    return Numbers(
        **{"time": time, "epoch": report.epoch, "in_epoch": report.in_epoch},
        **{"step": report.step, "steps": steps},
        seconds=seconds,
        split=each,
        rss=report.rss,
        cpu=number(report.cpu) or 0.0,
        gpu=report.gpu,
        network_seconds=network if steps else None,
        network_to=(report.network_to or "")[:64],
        logs=logs_of(report.logs),
        aside=_numbers(report.aside),
    )


def logs_of(logs: Any) -> dict[str, Any]:
    """Returns the numbers of Keras's logs; what is no number travels as "NaN" or "Infinity"."""
    if not isinstance(logs, dict):
        return {}
    found = {k: v for k, v in logs.items() if number(v) is not None or v in NO_NUMBERS}
    return dict(list(found.items())[:MAX_LOGS])


def mean_split(splits: Sequence[Split]) -> dict[str, float | None]:
    """Returns the mean over workers of each part."""
    return {part: mean(split.get(part) for split in splits) for part in PARTS}


def rank_order(task: str) -> tuple[int, int]:
    """Sorts tasks by their names as ranks do: the chief, then the workers by their numbers."""
    role, _, index = task.partition(":")
    order = {"chief": 0, "worker": 1}.get(role, 2)
    return order, int(index) if index.isdecimal() else 0


def _numbers(values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        return {}
    return {str(k): n for k, v in values.items() if (n := number(v)) is not None}
