"""Finds slow workers, and what they are slow at, from the workers' own times. Pure.

Workers that train together take equally long for a step, because the fast ones wait. What tells
the slow one from them is its own time: what it did not spend on waiting for others. The time that
the network takes for its own sending is its own, too (train/network_waits.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tfrun.observe.step_reports import PARTS, Numbers

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
      lost: seconds that it has taken longer than the others in these steps, by `PARTS`. One report
        alone may hold ten steps, of which one has been held up elsewhere than usual.
      slow: it was so in these steps.
      named: what it has been named for since it became a straggler; empty when it is none.
    """

    steps: int = 0
    reports: int = 0
    lost: tuple[float, ...] = (0.0,) * len(PARTS)
    slow: bool = True
    named: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What workers take for a step, in seconds: medians.

    Attributes:
      own: themselves, without the network.
      network: to send to another machine; None where none of them does.
    """

    own: float
    network: float | None


@dataclass(frozen=True, kw_only=True)
class StragglerVerdict:
    """A worker has become a straggler, is one for another cause too, or has ceased to be one.

    Attributes:
      slow: which of both.
      factor: its own time over the median of the others'.
      own_seconds, usual_seconds: its own time of a step, and that median.
      slow_at: "input", "compute", "network" or "callbacks".
      network_to: the address to which its network is slow.
    """

    slow: bool
    factor: float
    own_seconds: float
    usual_seconds: float
    slow_at: str
    network_to: str = ""


def judge(
    task: str, before: Suspicion, latest: Mapping[str, Numbers]
) -> tuple[Suspicion, StragglerVerdict | None]:
    """Returns what is known against a worker after its newest report, one of this round's."""
    mine = latest[task]
    others = [
        found
        for name, found in latest.items()
        if name != task and found.own_seconds is not None and mine.time - found.time < FRESH_SECONDS
    ]
    if mine.own_seconds is None or not others or mine.waited is None:
        return before, None
    own, usual = _lag(mine, usual_of(others))
    factor = own / usual if usual > 0 else 1.0
    slow = factor > FACTOR and own - usual > LEAST_SECONDS
    if not slow and not (before.named and factor < BACK_FACTOR):
        return Suspicion(named=before.named), None
    if slow != before.slow:
        before = Suspicion(named=before.named, slow=slow)
    lost = zip(before.lost, _lost(mine, others), strict=True)
    now = Suspicion(
        steps=before.steps + mine.steps,
        reports=before.reports + 1,
        lost=tuple(known + mine.steps * more for known, more in lost),
        slow=slow,
        named=before.named,
    )
    if now.steps < STEPS or now.reports < REPORTS:
        return now, None
    cause = CAUSES[max(zip(PARTS, now.lost, strict=True), key=lambda pair: pair[1])[0]]
    if slow and cause in before.named:
        return Suspicion(named=before.named), None
    verdict = StragglerVerdict(
        slow=slow,
        factor=round(factor, 2),
        own_seconds=own,
        usual_seconds=usual,
        slow_at=cause,
        network_to=mine.network_to if cause == "network" else "",
    )
    return Suspicion(named=(*before.named, cause) if slow else ()), verdict


def usual_of(reports: Iterable[Numbers]) -> Usual:
    """Returns the medians of reports; 0 where nothing is known."""
    reports = list(reports)
    own = [_alone(found) for found in reports if found.own_seconds is not None]
    sent = [found.network_seconds for found in reports if found.network_seconds is not None]
    return Usual(own=median(own or [0.0]), network=median(sent) if sent else None)


def may_count(mine: Numbers, before: Suspicion, usual: Usual) -> bool:
    """Whether `judge`, which looks at all the others, could come to anything but "nothing".

    Args:
      mine: a worker's newest report.
      before: what is known against it.
      usual: `usual_of` a short time ago, of many workers.
    """
    if before != Suspicion() or mine.own_seconds is None:
        return True
    own, others = _lag(mine, usual)
    return own > CERTAIN * FACTOR * others


def sentence(event: Mapping[str, Any]) -> str:
    """Returns the line that names a straggler, of an event of that kind."""
    to = event.get("network_to")
    what = {
        "input": "its input takes",
        "compute": "its own computing takes",
        "network": f"its network{f' to {to}' if to else ''} takes",
        "callbacks": "its callbacks, or other Python between the steps, take",
    }[event["slow_at"]]
    own, usual = 1000 * event["own_seconds"], 1000 * event["usual_seconds"]
    return (
        f"{event['task'].replace(':', ' ')} slows the others down: {what} the time "
        f"({own:.1f} ms of its own a step, the others {usual:.1f})"
    )


def _alone(found: Numbers) -> float:
    """The seconds of a step that wait neither for others nor for the network."""
    return max(0.0, (found.own_seconds or 0.0) - (found.network_seconds or 0.0))


def _lag(mine: Numbers, usual: Usual) -> tuple[float, float]:
    """What a worker takes and what is usual: with or without the network, where it is slower.

    Those whose peers are all on their own machine are no measure of a network. And one that all
    find equally narrow must not hide a worker that is slow in itself.
    """
    alone, sends = _alone(mine), mine.network_seconds
    pairs = [(alone, usual.own)]
    if sends is not None and usual.network is not None:
        pairs.append((alone + sends, usual.own + usual.network))
    return max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] > 0 else 1.0)


def _lost(mine: Numbers, others: Sequence[Numbers]) -> list[float]:
    """The seconds of a step that it takes longer than the others, by `PARTS`."""

    def excess(part: str) -> float:
        if part == "communication":
            usual = usual_of(others).network
            return 0.0 if usual is None else (mine.network_seconds or 0.0) - usual
        known = [value for found in others if (value := found.split.get(part)) is not None]
        return (mine.split.get(part) or 0.0) - (median(known) if known else 0.0)

    return [excess(part) for part in PARTS]
