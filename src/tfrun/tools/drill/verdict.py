"""Decides from a job's events and its undisturbed twin's whether every promise was kept. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrun.job.exits import EXIT_PREEMPTED
from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill.fault_events import JobEvent, Lost
from tfrun.tools.drill.inject import Hit


@dataclass(frozen=True, kw_only=True)
class Samples:
    """How many samples were not consumed, and how many more than once in an epoch."""

    lost: int
    repeated: int


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A job that is over.

    `timed_out`: it took longer than it may, and was ended. `samples` is what its ledger says; None
    where it has none.
    """

    run_dir: str
    events: Sequence[JobEvent]
    code: int
    timed_out: bool
    seconds: float
    samples: Samples | None = None

    def weights_equal(self, wanted: Mapping[int, frozenset[str]]) -> bool | None:
        """Whether each `fit` ended with the wanted weights; None where nobody has told any."""
        found = reading.weights(self.events)
        return found == wanted if wanted or found else None

    def broken(self, equal: bool | None) -> list[str]:
        """What it has broken of what every job promises; `equal`: its weights are."""
        if self.code != 0:
            return ["took too long" if self.timed_out else f"the job ended with {self.code}"]
        return ["other weights"] if equal is False else []

    def samples_broken(self) -> list[str]:
        if self.code != 0 or self.samples is None:
            return []
        counts = (("lost", self.samples.lost), ("repeated", self.samples.repeated))
        return [f"{count} samples {what}" for what, count in counts if count]


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
      recoveries: how often the job has recovered.
      in_place: how often of these the workers that were left stayed in their processes.
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
    recoveries: int = 0
    in_place: int = 0
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
    run: EndedRun,
    hits: Sequence[Hit],
    wanted: Mapping[int, frozenset[str]],
    *,
    workers: int,
    times: int = 1,
    limit: float | None = None,
) -> Row:
    """Returns the row of a run that was to be hit by a fault so many `times`.

    `wanted` are the weights of the undisturbed run, as `fault_events.weights` returns them; `limit`
    is the most seconds that the first new step may take.
    """
    failed = run.code != 0
    hits = [hit for hit in hits if failed or reading.failed_after(run.events, hit.time)]
    noticed = [_seconds(hit, reading.noticed_at(run.events, hit.time, hit.tasks)) for hit in hits]
    first_steps = [_seconds(hit, reading.recovered_at(run.events, hit.time)) for hit in hits]
    lost = reading.lost_steps(run.events, [hit.time for hit in hits])
    equal = run.weights_equal(wanted)
    broken = ["no new step"] if None in first_steps and not failed else []
    broken += run.broken(equal)
    if hits and not failed:
        broken += _lost_too_much(lost, hits, workers)
    broken += run.samples_broken()
    broken += _too_late(first_steps, limit)
    return _row(
        fault,
        run,
        broken,
        hit=len(hits),
        times=times,
        noticed=_median(noticed),
        first_step=_median(first_steps),
        first_steps=tuple(first_steps),
        steps_lost=lost.steps,
        steps_lost_exact=lost.exact,
        weights_equal=equal,
    )


def _row(fault: str, run: EndedRun, broken: Sequence[str], **found: Any) -> Row:
    counted = run.samples
    recovered, in_place = reading.recoveries(run.events)
    return Row(
        recoveries=recovered,
        in_place=in_place,
        fault=fault,
        run_dir=run.run_dir,
        samples_lost=counted.lost if counted else None,
        samples_repeated=counted.repeated if counted else None,
        broken=tuple(broken),
        **found,
    )


def _too_late(seconds: Sequence[float | None], limit: float | None) -> list[str]:
    is_late = limit is not None and any(each is not None and each > limit for each in seconds)
    return [f"first new step after more than {limit:g} s"] if is_late else []


def _lost_too_much(lost: Lost, hits: Sequence[Hit], workers: int) -> list[str]:
    struck = Counter(worker.round for hit in hits for worker in hit.victims)
    if any(count >= workers for count in struck.values()):
        return []  # in that round nobody was left with the state of the last step: no promise
    if lost.steps:
        return [f"{lost.steps} steps lost"]
    return [] if lost.exact else ["no survivor has kept its state"]


def _seconds(hit: Hit, when: float | None) -> float | None:
    # The log rounds its times.
    return None if when is None else round(max(0.0, when - hit.time), 4)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def judge_preempted(
    first: EndedRun,
    again: EndedRun | None,
    told: float | None,
    restarted: float,
    wanted: Mapping[int, frozenset[str]],
    *,
    limit: float | None = None,
) -> Row:
    """Returns the row of a job that was told to end, and of the one that went on from it.

    `told` is when SIGTERM came, None when the job was over before; `again` is None when there was
    no need for a second job, which was `restarted` then. The others are as for `judge`.
    """
    if told is None or (first.code == 0 and again is None):
        return Row(fault="preempt", run_dir=first.run_dir)
    saved = reading.saved_at(first.events, told)
    broken = [] if first.code == EXIT_PREEMPTED else [f"the job ended with {first.code}, not 75"]
    if again is None:
        return Row(fault="preempt", run_dir=first.run_dir, hit=1, broken=tuple(broken))
    lost: int | None = None
    if saved is not None:
        resumed = reading.resumed_step(again.events, restarted)
        lost = None if saved[1] is None else max(0, saved[1] - (resumed or 0))
    else:
        broken.append("nothing was saved")
    equal = again.weights_equal(wanted)
    step = reading.first_step_at(again.events, restarted)
    seconds = None if step is None else round(step - restarted, 4)
    broken += again.broken(equal)
    if lost:
        broken.append(f"{lost} steps lost")
    broken += _too_late([seconds], limit)
    broken += again.samples_broken()
    return _row(
        "preempt",
        again,
        broken,
        hit=1,
        noticed=None if saved is None else round(saved[0] - told, 4),
        first_step=seconds,
        first_steps=(seconds,),
        steps_lost=lost or 0,
        weights_equal=equal,
    )


def judge_full_disk(
    run: EndedRun,
    filled: float | None,
    warned: float | None,
    wanted: Mapping[int, frozenset[str]],
) -> Row:
    """Returns the row of a job whose checkpoints had no room from some moment on.

    `filled` is when the disk was full, None when the job was over before; `warned` when a person
    was told, None for never.
    """
    if run.code == 0 and filled is None:
        return Row(fault="disk", run_dir=run.run_dir)
    equal = run.weights_equal(wanted)
    broken = run.broken(equal)
    if warned is None:
        broken.append("no warning")
    broken += run.samples_broken()
    noticed = None
    if filled is not None and warned is not None:
        noticed = round(max(0.0, warned - filled), 4)
    hit = int(filled is not None)
    return _row("disk", run, broken, hit=hit, noticed=noticed, weights_equal=equal)
