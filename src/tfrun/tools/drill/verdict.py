"""Decides from a job's events and its undisturbed twin's whether every promise was kept. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfrun.job.exits import EXIT_PREEMPTED
from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill.fault_events import Event, Lost
from tfrun.tools.drill.inject import Hit
from tfrun.tools.drill.samples import Samples


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A job that is over.

    Attributes:
      events: all that happened in it.
      code: its exit code.
      timed_out: it took longer than it may, and was ended.
      seconds: how long it took.
      samples: what its ledger says; None when it has none.
    """

    events: Sequence[Event]
    code: int
    timed_out: bool
    seconds: float
    samples: Samples | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a fault did.

    Attributes:
      fault: its name.
      run_dir: the directory of the job.
      hit: how often it came.
      times: how often it should have come; a job that is over before that has shown too little.
      noticed: seconds from the fault until the job noticed, the median when it came repeatedly.
      first_step: seconds from the fault to the first new step, the median.
      first_steps: the same for each time that it came; None where no step followed.
      steps_lost: steps that had to be done again.
      steps_lost_exact: False when they may be more, because nobody who knew the last one was left.
      weights_equal: after each `fit` the bits are those of the undisturbed run; None when the
        script has reported none.
      samples_lost, samples_repeated: by the job's ledger; None when it has none.
      skipped: what the fault needs that is not there; then nothing was run.
      broken: the promises that were broken, one clause each.
    """

    fault: str
    run_dir: str
    hit: int = 0
    times: int = 1
    noticed: float | None = None
    first_step: float | None = None
    first_steps: tuple[float | None, ...] = ()
    steps_lost: int = 0
    steps_lost_exact: bool = True
    weights_equal: bool | None = None
    samples_lost: int | None = None
    samples_repeated: int | None = None
    skipped: str = ""
    broken: tuple[str, ...] = ()

    @property
    def slowest(self) -> float | None:
        """The longest of `first_steps`."""
        return max((seconds for seconds in self.first_steps if seconds is not None), default=None)

    @property
    def ok(self) -> bool:
        return self.hit == self.times and not self.broken


def judge(
    fault: str,
    run_dir: str,
    run: EndedRun,
    hits: Sequence[Hit],
    wanted: Mapping[int, frozenset[str]],
    *,
    workers: int,
    times: int = 1,
    limit: float | None = None,
) -> Row:
    """Returns the row of one run.

    Args:
      fault: a key of `FAULTS`.
      run_dir: the job's directory.
      run: the job.
      hits: the faults that were sent.
      wanted: the weights of the undisturbed run, as `events.weights` returns them.
      workers: how many the job has.
      times: how many hits there should have been.
      limit: the most seconds that the first new step may take.
    """
    failed = run.code != 0
    hits = [hit for hit in hits if failed or reading.failed_after(run.events, hit.time)]
    noticed = [_seconds(hit, _noticed_at(run, hit)) for hit in hits]
    first_steps = [_seconds(hit, reading.recovered_at(run.events, hit.time)) for hit in hits]
    lost = reading.lost_steps(run.events, [hit.time for hit in hits])
    found = reading.weights(run.events)
    equal = found == wanted if wanted or found else None
    late = limit is not None and any(
        seconds is not None and seconds > limit for seconds in first_steps
    )
    broken = []
    if failed:
        broken.append("took too long" if run.timed_out else f"the job ended with {run.code}")
    elif None in first_steps:
        broken.append("no new step")
    if equal is False and not failed:
        broken.append("other weights")
    if hits and not failed:
        broken += _lost_too_much(lost, survivors_in_all_rounds(hits, workers))
    broken += samples_broken(run)
    if late:
        broken.append(f"first new step after more than {limit:g} s")
    return Row(
        fault=fault,
        run_dir=run_dir,
        hit=len(hits),
        times=times,
        noticed=_median(noticed),
        first_step=_median(first_steps),
        first_steps=tuple(first_steps),
        steps_lost=lost.steps,
        steps_lost_exact=lost.exact,
        weights_equal=equal,
        samples_lost=run.samples.lost if run.samples else None,
        samples_repeated=run.samples.repeated if run.samples else None,
        broken=tuple(broken),
    )


def samples_broken(run: EndedRun) -> list[str]:
    if run.code != 0 or run.samples is None:
        return []
    counts = (("lost", run.samples.lost), ("repeated", run.samples.repeated))
    return [f"{count} samples {what}" for what, count in counts if count]


def survivors_in_all_rounds(hits: Sequence[Hit], workers: int) -> bool:
    """True when each round had a worker that no fault has hit."""
    struck = Counter(worker.round for hit in hits for worker in hit.victims)
    return all(count < workers for count in struck.values())


def _lost_too_much(lost: Lost, survivors: bool) -> list[str]:
    if not survivors:
        return []  # nobody had the state of the last step: that is no promise
    if lost.steps:
        return [f"{lost.steps} steps lost"]
    return [] if lost.exact else ["no survivor has kept its state"]


def _noticed_at(run: EndedRun, hit: Hit) -> float | None:
    return reading.noticed_at(run.events, hit.time, {worker.task for worker in hit.victims})


def _seconds(hit: Hit, when: float | None) -> float | None:
    # The log rounds its times.
    return None if when is None else round(max(0.0, when - hit.time), 4)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def judge_preempted(
    run_dir: str,
    first: EndedRun,
    again: EndedRun | None,
    told: float | None,
    restarted: float,
    wanted: Mapping[int, frozenset[str]],
    *,
    limit: float | None = None,
) -> Row:
    """Returns the row of a job that was told to end, and of the one that went on from it.

    Args:
      run_dir: of both.
      first: the job that was told to end.
      again: the one that was started then; None when there was no need for one.
      told: when SIGTERM came; None when the job was over before.
      restarted: when the second one was started.
      wanted: the weights of the undisturbed run.
      limit: the most seconds that the first new step may take.
    """
    if told is None or (first.code == 0 and again is None):
        return Row(fault="preempt", run_dir=run_dir)
    saved = reading.saved_at(first.events, told)
    broken = [] if first.code == EXIT_PREEMPTED else [f"the job ended with {first.code}, not 75"]
    if again is None:
        return Row(fault="preempt", run_dir=run_dir, hit=1, broken=tuple(broken))
    step, resumed = reading.step_after(again.events, restarted), None
    lost: int | None = None
    if saved is not None:
        resumed = reading.resumed_step(again.events, restarted)
        lost = None if saved[1] is None else max(0, saved[1] - (resumed or 0))
    else:
        broken.append("nothing was saved")
    found = reading.weights(again.events)
    equal = found == wanted if wanted or found else None
    seconds = None if step is None else round(step - restarted, 4)
    if again.code != 0:
        broken.append("took too long" if again.timed_out else f"the job ended with {again.code}")
    elif equal is False:
        broken.append("other weights")
    if lost:
        broken.append(f"{lost} steps lost")
    if limit is not None and seconds is not None and seconds > limit:
        broken.append(f"first new step after more than {limit:g} s")
    broken += samples_broken(again)
    return Row(
        fault="preempt",
        run_dir=run_dir,
        hit=1,
        noticed=None if saved is None else round(saved[0] - told, 4),
        first_step=seconds,
        first_steps=(seconds,),
        steps_lost=lost or 0,
        weights_equal=equal,
        samples_lost=again.samples.lost if again.samples else None,
        samples_repeated=again.samples.repeated if again.samples else None,
        broken=tuple(broken),
    )


def judge_full_disk(
    run_dir: str,
    run: EndedRun,
    filled: float | None,
    warned: float | None,
    wanted: Mapping[int, frozenset[str]],
) -> Row:
    """Returns the row of a job whose checkpoints had no room from some moment on.

    Args:
      run_dir: the job's directory.
      run: the job.
      filled: when the disk was full; None when the job was over before.
      warned: when a person was told; None for never.
      wanted: the weights of the undisturbed run.
    """
    found = reading.weights(run.events)
    equal = found == wanted if wanted or found else None
    broken = []
    if run.code != 0:
        broken.append("took too long" if run.timed_out else f"the job ended with {run.code}")
    elif filled is None:
        return Row(fault="disk", run_dir=run_dir)
    elif equal is False:
        broken.append("other weights")
    if warned is None:
        broken.append("no warning")
    broken += samples_broken(run)
    noticed = None
    if filled is not None and warned is not None:
        noticed = round(max(0.0, warned - filled), 4)
    return Row(
        fault="disk",
        run_dir=run_dir,
        hit=int(filled is not None),
        noticed=noticed,
        weights_equal=equal,
        samples_lost=run.samples.lost if run.samples else None,
        samples_repeated=run.samples.repeated if run.samples else None,
        broken=tuple(broken),
    )
