"""Reads in a job's events what came of a fault: who ran, who noticed, when it went on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tfrun.job import reports
from tfrun.observe.events import JobEvent

_ENDING = ("leaving", "stopping")  # states of a round that has noticed a failure


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


def running(events: Sequence[JobEvent]) -> dict[str, WorkerRun]:
    """Returns the workers that have started and not ended, by task."""
    workers: dict[str, WorkerRun] = {}
    newest = 0
    for event in events:
        if event["event"] == "worker_started":
            task = event["task"]
            if event["round"] > newest:  # whoever has stayed is told of in this one, too
                newest, workers = event["round"], {}
            workers[task] = WorkerRun(task=task, pid=event["pid"], round=event["round"])
        elif event["event"] == "worker_exited":
            workers.pop(event["task"], None)
    return workers


def first_step_at(events: Sequence[JobEvent], since: float = 0.0) -> float | None:
    """Returns when a worker that was started since then had made its first step.

    All times are seconds since the epoch.
    """
    return next((e["time"] for e in _after(events, since) if _is(e, reports.FirstStep)), None)


def training_seconds(events: Sequence[JobEvent]) -> float:
    """Returns the seconds from the first step to the end of the last `fit`; 0 without steps.

    What comes after it is no training: keeping the finished call can take seconds. A custom loop
    has no `fit`: then until a worker was done.
    """
    began = first_step_at(events)
    ends = [e["time"] for e in events if _is(e, reports.EpochEnd, reports.FitEnd)]
    ends = ends or [e["time"] for e in events if _is(e, reports.Done)][:1]
    return 0.0 if began is None else max(0.0, max(ends, default=began) - began)


def noticed_at(events: Sequence[JobEvent], since: float, victims: Collection[str]) -> float | None:
    """Returns when the job noticed that something had happened to `victims`."""
    for event in _after(events, since):
        if event["event"] == "round" and event["state"] in _ENDING:
            return event["time"]
        # A death while the round is ending anyway is no new end.
        ended = event["event"] == "worker_exited" and event["task"] in victims
        if ended and event["code"] < 0:
            return event["time"]
    return None


def failed_after(events: Sequence[JobEvent], since: float) -> bool:
    """True when a round has failed since then: a fault in a finished worker changes nothing."""
    return any(event["event"] == "failure" for event in _after(events, since))


def recovered_at(events: Sequence[JobEvent], since: float) -> float | None:
    """Returns when a new step had been made."""
    return next((e["time"] for e in _after(events, since) if e["event"] == "recovered"), None)


def saved_at(events: Sequence[JobEvent], since: float) -> tuple[float, int | None] | None:
    """Returns when the job had saved because it was told to end, and how many steps."""
    for event in _after(events, since):
        match reports.of(event):
            case reports.StateSaved(step=step):
                return event["time"], step
    return None


def recoveries(events: Sequence[JobEvent]) -> tuple[int, int]:
    """Returns how often the job has recovered, and how often of these in place."""
    found = [bool(e.get("in_place")) for e in events if e["event"] == "recovered"]
    return len(found), sum(found)


def resumed_step(events: Sequence[JobEvent], since: float) -> int | None:
    """Returns the step that workers went on from; None when they began at the beginning."""
    for event in _after(events, since):
        if event["event"] == "recovered" and event.get("in_place"):
            return event["step"]
        match reports.of(event):
            case reports.Resumed(step=step):
                return step
    return None


def lost_steps(events: Sequence[JobEvent], faults: Sequence[float]) -> Lost:
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
        report = reports.of(event)
        if isinstance(report, reports.FirstStep):
            unkept = True
        elif isinstance(report, reports.Stayed):  # it is in a worker that goes on
            unkept = False
        elif isinstance(report, reports.SnapshotTaken):
            after_fault = any(began <= fault <= event["time"] for fault in (*faults, *told))
            # Of the state at the end of a `fit` no step can be lost.
            unkept = unkept and not (after_fault or report.key[1:] == [0, 0])
        elif event["event"] == "worker_started" and event["round"] > round:
            round, began = event["round"], event["time"]
            exact, unkept = exact and not unkept, False
        elif event["event"] == "recovered":
            steps += event["lost_steps"]
    return Lost(steps=steps, exact=exact)


def weights(events: Sequence[JobEvent]) -> dict[int, frozenset[str]]:
    """Returns the digests of the weights after each `fit`, by the call's number.

    There are several for a call that has been reported with different weights.
    """
    found: dict[int, frozenset[str]] = {}
    for event in events:
        match reports.of(event):
            case reports.Weights(call=call, digest=digest):
                found[call] = found.get(call, frozenset()) | {digest}
    return found


def without_weights(events: Sequence[JobEvent]) -> tuple[JobEvent, ...]:
    """The events but for what `weights` reads."""
    return tuple(event for event in events if not _is(event, reports.Weights))


def world_sizes(events: Sequence[JobEvent]) -> set[int]:
    """Returns how many workers the rounds had."""
    tasks: dict[int, set[str]] = {}
    for event in events:
        if event["event"] == "worker_started":
            tasks.setdefault(event["round"], set()).add(event["task"])
    return {len(found) for found in tasks.values()}


def _is(event: JobEvent, *kinds: type[reports.Report]) -> bool:
    return isinstance(reports.of(event), kinds)


def _after(events: Sequence[JobEvent], since: float) -> Iterator[JobEvent]:
    return (event for event in events if event["time"] >= since)
