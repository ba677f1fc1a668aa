"""Who is slow, and at what: pure decisions about the workers' own times.

Workers that train together take equally long for a step, because the fast ones wait. What tells
the slow one from them is its own time: what it did not spend on waiting for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tfrun.observe.numbers import PARTS, Numbers

FACTOR = 1.5  # times the median of the others' own time
LEAST_SECONDS = 0.002  # more than theirs: below that, a busy machine makes the difference
STEPS = 20
REPORTS = 3  # one that a moment's load has delayed is no straggler
BACK_FACTOR = 1.25
FRESH_SECONDS = 30.0
MANY = 32  # workers: from here on one of them hardly moves the median
CERTAIN = 0.8  # of the factor: below that, a closer look would find nothing
CAUSES = {"input": "input", "compute": "compute", "communication": "network", "other": "callbacks"}


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """What is known against a worker.

    Attributes:
      steps: how many in a row it was slow, or has been well since it was named.
      reports: in how many reports.
      named: it is a straggler.
    """

    steps: int = 0
    reports: int = 0
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A worker has become a straggler, or has ceased to be one.

    Attributes:
      slow: which of both.
      factor: its own time over the median of the others'.
      own_seconds, usual_seconds: its own time of a step, and that median.
      slow_at: "input", "compute", "network" or "callbacks".
    """

    slow: bool
    factor: float
    own_seconds: float
    usual_seconds: float
    slow_at: str


def judge(
    task: str, before: Suspicion, latest: Mapping[str, Numbers]
) -> tuple[Suspicion, Verdict | None]:
    """Returns what is known against a worker after its newest report.

    Args:
      task: the worker.
      before: what was known.
      latest: each worker's newest report of this round.
    """
    mine = latest[task]
    own = mine.own_seconds
    others = [
        found
        for name, found in latest.items()
        if name != task and found.own_seconds is not None and mine.time - found.time < FRESH_SECONDS
    ]
    if own is None or not others or mine.waited is None:
        return before, None
    usual = median(found.own_seconds or 0.0 for found in others)
    factor = own / usual if usual > 0 else 1.0
    if before.named:
        counts = factor < BACK_FACTOR
    else:
        counts = factor > FACTOR and own - usual > LEAST_SECONDS
    if not counts:
        return replace(before, steps=0, reports=0), None
    now = replace(before, steps=before.steps + mine.steps, reports=before.reports + 1)
    if now.steps < STEPS or now.reports < REPORTS:
        return now, None
    verdict = Verdict(
        slow=not before.named,
        factor=round(factor, 2),
        own_seconds=own,
        usual_seconds=usual,
        slow_at=_cause(mine, others),
    )
    return Suspicion(named=not before.named), verdict


def usual_of(latest: Mapping[str, Numbers]) -> float:
    """Returns the median of all workers' own times; 0 where none is known."""
    return median([found.own_seconds for found in latest.values() if found.own_seconds] or [0.0])


def may_count(mine: Numbers, before: Suspicion, usual: float) -> bool:
    """Whether `judge`, which looks at all the others, could come to anything but "nothing".

    Args:
      mine: a worker's newest report.
      before: what is known against it.
      usual: `usual_of` a short time ago, of many workers.
    """
    if before != Suspicion() or mine.own_seconds is None:
        return True
    return mine.own_seconds > CERTAIN * FACTOR * usual


def sentence(event: Mapping[str, Any]) -> str:
    """Returns the line that names a straggler.

    Args:
      event: of the kind "straggler".
    """
    what = {
        "input": "its input takes",
        "compute": "its own computing takes",
        "network": "its network takes",
        "callbacks": "its callbacks, or other Python between the steps, take",
    }[event["slow_at"]]
    own, usual = 1000 * event["own_seconds"], 1000 * event["usual_seconds"]
    return (
        f"{event['task'].replace(':', ' ')} slows the others down: {what} the time "
        f"({own:.1f} ms of its own a step, the others {usual:.1f})"
    )


def _cause(mine: Numbers, others: list[Numbers]) -> str:
    """The part of a step in which it loses most against the others."""

    def excess(part: str) -> float:
        known = [value for found in others if (value := found.split.get(part)) is not None]
        return (mine.split.get(part) or 0.0) - (median(known) if known else 0.0)

    own_parts = [part for part in PARTS if part != "communication"]
    return CAUSES[max(own_parts, key=excess)]
