"""Reads in a job's events what came of a fault: who ran, who noticed, when it went on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfrun.tools.child_job import Event

_ENDING = ("leaving", "stopping")  # states of a round that has noticed a failure
_TRAINED = ("epoch_end", "fit_end")


@dataclass(frozen=True, kw_only=True)
class WorkerRun:
    """A worker process of one round."""

    task: str
    pid: int
    round: int


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Steps that had to be done again.

    Attributes:
      steps: how many the job knows of.
      exact: False when steps were made after the last state that a worker has reported to have
        kept: then `steps` is only the least that it can be.
    """

    steps: int = 0
    exact: bool = True


def running(events: Sequence[Event]) -> dict[str, WorkerRun]:
    """Returns the workers that have started and not ended, by task."""
    workers: dict[str, WorkerRun] = {}
    for event in events:
        if event["event"] == "worker_started":
            task = event["task"]
            workers[task] = WorkerRun(task=task, pid=event["pid"], round=event["round"])
        elif event["event"] == "worker_exited":
            workers.pop(event["task"], None)
    return workers


def first_step_at(events: Sequence[Event]) -> float | None:
    """Returns when the job had made its first step, in seconds since the epoch."""
    return next((e["time"] for e in events if _kind(e) == "first_step"), None)


def training_seconds(events: Sequence[Event]) -> float:
    """Returns the seconds from the first step to the end of the last `fit`; 0 without steps.

    What comes after it is no training: keeping the finished call can take seconds. A custom loop
    has no `fit`: then until a worker was done.
    """
    began = first_step_at(events)
    ends = [event["time"] for event in events if _kind(event) in _TRAINED]
    ends = ends or [event["time"] for event in events if _kind(event) == "done"][:1]
    return 0.0 if began is None else max(0.0, max(ends, default=began) - began)


def noticed_at(events: Sequence[Event], since: float, victims: Collection[str]) -> float | None:
    """Returns when the job noticed that something had happened to `victims`."""
    for event in _after(events, since):
        if event["event"] == "round" and event["state"] in _ENDING:
            return event["time"]
        # A death while the round is ending anyway is no new end.
        ended = event["event"] == "worker_exited" and event["task"] in victims
        if ended and event["code"] < 0:
            return event["time"]
    return None


def failed_after(events: Sequence[Event], since: float) -> bool:
    """True when a round has failed since then: a fault in a finished worker changes nothing."""
    return any(event["event"] == "failure" for event in _after(events, since))


def recovered_at(events: Sequence[Event], since: float) -> float | None:
    """Returns when a new step had been made."""
    return next((e["time"] for e in _after(events, since) if e["event"] == "recovered"), None)


def saved_at(events: Sequence[Event], since: float) -> tuple[float, int | None] | None:
    """Returns when the job had saved because it was told to end, and how many steps."""
    for event in _after(events, since):
        if _kind(event) == "job_saved":
            return event["time"], event["report"].get("step")
    return None


def resumed_step(events: Sequence[Event], since: float) -> int | None:
    """Returns the step that workers went on from; None when they began at the beginning."""
    steps = (e["report"].get("step") for e in _after(events, since) if _kind(e) == "resumed")
    return next(steps, None)


def step_after(events: Sequence[Event], since: float) -> float | None:
    """Returns when a worker that was started since then had made its first step."""
    return first_step_at(list(_after(events, since)))


def lost_steps(events: Sequence[Event], faults: Sequence[float]) -> Lost:
    """Returns the steps that had to be done again, in all recoveries.

    Args:
      events: all of the job.
      faults: when they came. A snapshot that is written after a fault holds the last step; one
        that was written before, in the midst of training, does not say what followed it. When
        machines return, the workers are told to leave, and their snapshots are the last ones too.
    """
    told = [event["time"] for event in events if event["event"] == "regroup"]
    steps, exact, unkept, round, began = 0, True, False, 0, 0.0
    for event in events:
        kind = _kind(event)
        if kind == "first_step":
            unkept = True
        elif kind == "snapshot":
            after_fault = any(began <= fault <= event["time"] for fault in (*faults, *told))
            unkept = unkept and not (after_fault or _ends_call(event["report"]))
        elif event["event"] == "worker_started" and event["round"] > round:
            round, began = event["round"], event["time"]
            exact, unkept = exact and not unkept, False
        elif event["event"] == "recovered":
            steps += event["lost_steps"]
    return Lost(steps=steps, exact=exact)


def _ends_call(report: Event) -> bool:
    """True for the state at the end of a `fit`, of which no step can be lost."""
    return list(report.get("key") or ())[1:] == [0, 0]


def weights(events: Sequence[Event]) -> dict[int, frozenset[str]]:
    """Returns the digests of the weights after each `fit`, by the call's number.

    There are several for a call that has been reported with different weights.
    """
    found: dict[int, frozenset[str]] = {}
    for event in events:
        if _kind(event) == "weights":
            report = event["report"]
            found[report["call"]] = found.get(report["call"], frozenset()) | {report["digest"]}
    return found


def without_weights(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events but for what `weights` reads."""
    return tuple(event for event in events if _kind(event) != "weights")


def world_sizes(events: Sequence[Event]) -> set[int]:
    """Returns how many workers the rounds had."""
    tasks: dict[int, set[str]] = {}
    for event in events:
        if event["event"] == "worker_started":
            tasks.setdefault(event["round"], set()).add(event["task"])
    return {len(found) for found in tasks.values()}


def _kind(event: Event) -> Any:
    return event["report"].get("kind") if event["event"] == "worker_report" else None


def _after(events: Sequence[Event], since: float) -> Iterator[Event]:
    return (event for event in events if event["time"] >= since)
