"""Decides which workers of a machine hang, from the progress that they show. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tfrun.job.timeouts import Timeouts
from tfrun.process.progress import Phase, Reading

STEPS_WAITED_FOR = 10
# Who has been asked so often and for so long and has shown nothing new does nothing; two looks make
# a comparison, and on a busy machine an answer takes its time.
ASKED_TIMES, ASKED_SECONDS = 4, 2.0
STOPPED_LOOKS = 3  # one a second
ENDED_LOOKS = 3  # at one that SIGKILL should have ended; to free much memory takes its time
_IN_STEPS = frozenset({Phase.BETWEEN, Phase.STEP, Phase.BODY})


def hung(
    readings: Mapping[str, Reading],
    *,
    now: float,
    timeouts: Timeouts,
    alone: bool,
    answered: Collection[str],
) -> dict[str, float]:
    """The workers that are to be replaced, with the seconds they have stood still.

    Args:
      readings: of each worker of the machine.
      now: monotonic seconds.
      timeouts: of the job.
      alone: the job has no workers on other machines.
      answered: those that have had the time to find out whether their loop's body goes on.
    """
    all_stand = alone and all(
        found.phase in _IN_STEPS and now - found.since > _of_steps(found, timeouts)
        for found in readings.values()
    )
    found = {}
    for task, reading in readings.items():
        allowed = allowed_seconds(reading, timeouts, all_stand=all_stand)
        seconds = now - reading.since
        if reading.phase is Phase.BODY and task not in answered:
            continue  # it may only be waiting
        if allowed is not None and seconds > allowed:
            found[task] = seconds
    return found


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The question to a worker whether it goes on: in which phase, since when, and how often."""

    of: float
    since: float
    times: int = 1


def asked_again(before: Asked | None, reading: Reading, now: float) -> Asked:
    """The worker is asked once more; what it has shown since then begins a new count."""
    if before is None or before.of != reading.since:
        return Asked(of=reading.since, since=now)
    return replace(before, times=before.times + 1)


def have_answered(
    asked: Mapping[str, Asked], readings: Mapping[str, Reading], now: float
) -> set[str]:
    """Those whose silence, or whose answer that they wait for nobody, can be believed."""
    return {
        task
        for task, question in asked.items()
        if task in readings
        and readings[task].since == question.of
        and question.times >= ASKED_TIMES
        and now - question.since >= ASKED_SECONDS
    }


def wondered_about(readings: Mapping[str, Reading], *, now: float, timeouts: Timeouts) -> list[str]:
    """The workers that should find out whether the body of their loop goes on."""
    return [
        task
        for task, reading in readings.items()
        if reading.phase in (Phase.BODY, Phase.STEP, Phase.LOOP)
        and now - reading.since > _of_steps(reading, timeouts) / 2
    ]


def allowed_seconds(reading: Reading, timeouts: Timeouts, *, all_stand: bool) -> float | None:
    """How long a worker may be where it is; None for ever.

    Args:
      reading: where it is.
      timeouts: of the job.
      all_stand: whom it may be waiting for is known to stand still in a step too.
    """
    steps = _of_steps(reading, timeouts)
    match reading.phase:
        case Phase.BETWEEN | Phase.BODY:
            return steps
        case Phase.STEP:  # it waits, and who is waited for is to be replaced before
            longest = 0.0 if all_stand else timeouts.pause_timeout + timeouts.hang_timeout
            return max(2 * steps, longest)
        case Phase.TRACING:
            return max(timeouts.trace_timeout, steps)
        case Phase.PAUSE | Phase.LOOP:
            return max(timeouts.pause_timeout, steps)
        case Phase.WORKERS_START:
            return timeouts.join_timeout
    return None


def _of_steps(reading: Reading, timeouts: Timeouts) -> float:
    return max(timeouts.hang_timeout, STEPS_WAITED_FOR * reading.step_seconds)


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A worker that a signal has stopped: since when, how often it was seen so, and how much
    processor time (seconds) it had used.

    Looks are counted too: where the whole machine was suspended, the worker goes on a moment after
    its agent does.
    """

    since: float
    used: float
    looks: int = 1

    def is_to_be_replaced(self, timeouts: Timeouts, *, now: float, alone: bool) -> bool:
        """Whether it has been stopped for too long.

        Args:
          timeouts: of the job.
          now: monotonic seconds.
          alone: no other worker waits for it. Where others do, nobody but its agent can tell it
            from one that is slow: its machine answers for it.
        """
        long = now - self.since > timeouts.hang_timeout
        return self.looks >= STOPPED_LOOKS and (long or not alone)


def stopped_still(before: Stopped | None, used: float, now: float) -> Stopped:
    """The worker is seen stopped once more; where it has run in between, for the first time."""
    if before is None or before.used != used:
        return Stopped(since=now, used=used)
    return replace(before, looks=before.looks + 1)


def told(task: str, reading: Reading, seconds: float) -> str:
    """Returns what a person is told of a worker that is to be replaced.

    Args:
      task: its name.
      reading: where it is.
      seconds: for how long.
    """
    name = task.replace(":", " ")
    if reading.phase is Phase.WORKERS_START:
        return (
            f"{name} has been stuck in the workers' start for {seconds:.0f} s and is ended: it "
            "is waiting for workers that have not started, or whose ports it cannot reach"
        )
    return (
        f"{name} has made no progress for {seconds:.0f} s and is being replaced; its log shows "
        "where it was"
    )


def told_of_stopped(task: str, seconds: float) -> str:
    """As `told`, of a worker that a signal has stopped and none has let go on."""
    return (
        f"{task.replace(':', ' ')} was stopped (SIGSTOP) {seconds:.0f} s ago and is being "
        "replaced; kill -CONT would have let it go on"
    )
