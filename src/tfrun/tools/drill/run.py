"""Runs a drill: the script undisturbed, then once under each fault."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tfrun.data.ledger.proof import examine
from tfrun.job.errors import TfrunError, UsageError
from tfrun.job.exits import EXIT_PREEMPTED
from tfrun.tools.child_job import ChildJob, Experiment, Say, ends_children_on_signals, failed
from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill import full_disk
from tfrun.tools.drill.faults import FAULTS
from tfrun.tools.drill.inject import EARLIEST, LATEST, Hit, inject
from tfrun.tools.drill.report import DrillReport
from tfrun.tools.drill.verdict import (
    EndedRun,
    Row,
    Samples,
    judge,
    judge_full_disk,
    judge_preempted,
)

EARLIER = 0.25  # of the training time, for the one repetition of a fault that came too late
# Workers then report their weights' digest, and note which samples they have consumed.
DRILLED = {"TFRUN_DRILL": "1", "TFRUN_LEDGER": "1"}
NOT_SAVED = "No checkpoint is being saved"  # checkpoint/background_writer.py says it


@dataclass(frozen=True, kw_only=True)
class Drill(Experiment):
    """What a drill does; the moments and the victims depend on the seed too.

    `workers` are how many at most, `range` is what -n says, `hosts` are options that name other
    machines. Of the `faults`, keys of `FAULTS`, one that repeats comes `kills` times; the first new
    step may take `limit` seconds.
    """

    workers: int
    range: str
    hosts: tuple[str, ...] = ()
    faults: tuple[str, ...]
    kills: int
    limit: float | None = None

    def drilled(self, name: str, *options: str, again: bool = False) -> ChildJob:
        """Starts a job that tells what a drill wants to know, as `job` does."""
        stated = ("-n", self.range, *self.hosts, *options)
        return self.job(name, *stated, wanted=DRILLED, again=again)


def run_drill(drill: Drill, say: Say) -> DrillReport:
    """Runs it and returns what happened; `say` gets a line for each run.

    Raises:
      TfrunError: TFRUN-401 when the undisturbed run fails, TFRUN-105 when it makes no step.
    """
    say("undisturbed …")
    with ends_children_on_signals():
        with drill.drilled("undisturbed") as job:
            undisturbed = _finish(job, time.time())
        _check(undisturbed, job)
        rows = tuple(_row(drill, fault, undisturbed, say) for fault in drill.faults)
    return DrillReport(
        script=drill.program[0],
        workers=drill.workers,
        seed=drill.seed,
        seconds=round(undisturbed.seconds, 3),
        rows=rows,
    )


def _row(drill: Drill, fault: str, undisturbed: EndedRun, say: Say) -> Row:
    if reason := _why_not(drill, fault):
        say(f"{fault}: skipped: {reason}")
        return Row(fault=fault, run_dir=str(drill.folder / fault), skipped=reason)
    seconds = reading.training_seconds(undisturbed.events)
    row = _run_fault(drill, fault, fault, undisturbed, seconds, say)
    if row.hit == row.times or row.broken:
        return row
    say(f"{fault}: the job was over too soon; again, with earlier moments")
    return _run_fault(drill, fault, f"{fault}-again", undisturbed, EARLIER * seconds, say)


def _run_fault(
    drill: Drill, fault: str, name: str, undisturbed: EndedRun, seconds: float, say: Say
) -> Row:
    # Each fault has chances of its own: they do not change when others are left out.
    chance = random.Random(f"{drill.seed} {name}")
    times = drill.kills if FAULTS[fault].repeats else 1
    say(f"{fault}: {FAULTS[fault].what} …")
    began = time.time()
    whole = {"preempt": _preempt, "disk": _fill_disk, "cut": _cut}.get(fault)
    if whole is not None:
        return whole(drill, name, undisturbed, seconds * chance.uniform(EARLIEST, LATEST), say)
    with drill.drilled(name) as job:
        hits = inject(job, fault, times=times, seconds=seconds, chance=chance)
        for hit in hits if times == 1 else ():
            whom = " and ".join(hit.tasks).replace(":", " ")
            say(f"{fault}: {whom} {hit.time - began:.1f} s after the start")
        run = _finish(job, began)
    return judge(
        fault,
        run,
        hits,
        reading.weights(undisturbed.events),
        workers=drill.workers,
        times=times,
        limit=drill.limit,
    )


def _why_not(drill: Drill, fault: str) -> str:
    if fault == "disk":
        return full_disk.why_not()
    if fault == "cut" and not drill.hosts:
        return "needs at least two hosts: name them with -H"
    if fault == "cut" and ":" not in drill.range:
        return "needs a job that can do without a host: give -n MIN:MAX"
    return ""


def _preempt(drill: Drill, name: str, undisturbed: EndedRun, wait: float, say: Say) -> Row:
    """SIGTERM to the launcher; then the same command again, in the same run directory."""
    wanted = reading.weights(undisturbed.events)
    told = again = None
    restarted = 0.0
    with drill.drilled(name) as job:
        if _reached(job, wait):
            told = time.time()
            job.preempt()
            say(f"preempt: told to end {told - job.began:.1f} s after the start")
        first = _finish(job, job.began)
    if first.code == EXIT_PREEMPTED:
        with drill.drilled(name, again=True) as job:
            restarted = job.began
            again = _finish(job, restarted)
    return judge_preempted(first, again, told, restarted, wanted, limit=drill.limit)


def _fill_disk(drill: Drill, name: str, undisturbed: EndedRun, wait: float, say: Say) -> Row:
    """The checkpoints' file system has no room any more."""
    small, filled, warned = drill.folder / f"{name}-disk", None, None
    with full_disk.small(small):
        checkpoints = ["--checkpoint-dir", str(small / "checkpoints"), "--checkpoint-every", "1"]
        with drill.drilled(name, *checkpoints) as job:
            if _reached(job, wait):
                full_disk.fill(small)
                filled = time.time()
                say(f"disk: full {filled - job.began:.1f} s after the start")
                if job.until_shown(NOT_SAVED):
                    warned = time.time()
            run = _finish(job, job.began)
    return judge_full_disk(run, filled, warned, reading.weights(undisturbed.events))


def _cut(drill: Drill, name: str, undisturbed: EndedRun, wait: float, say: Say) -> Row:
    """The connection to the last host breaks: to both sides a host that has gone."""
    hits: list[Hit] = []
    with drill.drilled(name) as job:
        connections = job.connections() if _reached(job, wait) else []
        if connections:
            hits.append(Hit(time=time.time(), victims=()))
            connections[-1].kill()
            say(f"cut: {hits[0].time - job.began:.1f} s after the start")
        run = _finish(job, job.began)
    wanted = reading.weights(undisturbed.events)
    if len(reading.world_sizes(run.events)) > 1:  # other sums of floats, so other last bits
        wanted, run = {}, replace(run, events=reading.without_weights(run.events))
    return judge("cut", run, hits, wanted, workers=drill.workers)


def _reached(job: ChildJob, wait: float) -> bool:
    """Waits until the job has trained for so many seconds; False when it ends before."""
    began = job.until(reading.first_step_at)
    return began is not None and job.lasts_until(began + wait)


def _finish(job: ChildJob, began: float) -> EndedRun:
    code = job.wait()
    return EndedRun(
        run_dir=str(job.run_dir),
        events=tuple(job.events()),
        code=code,
        timed_out=job.timed_out,
        seconds=time.time() - began,
        samples=_samples(job.run_dir),
    )


def _samples(run_dir: Path) -> Samples | None:
    """What the ledger says; None where there is none: the data is no `tfrun.Dataset`."""
    try:
        epochs = examine(run_dir).epochs
    except (TfrunError, OSError, ValueError, KeyError, IndexError):
        return None
    if not epochs:
        return None
    return Samples(
        lost=sum(epoch.missing_count for epoch in epochs),
        repeated=sum(epoch.duplicate_count for epoch in epochs),
    )


def _check(undisturbed: EndedRun, job: ChildJob) -> None:
    if undisturbed.code != 0:
        raise failed(job, undisturbed.code, "without any fault the job")
    if reading.first_step_at(undisturbed.events) is None:
        raise UsageError(
            "TFRUN-105",
            "the script makes no step that tfrun sees, so there is nothing to disturb",
            where="SCRIPT",
            expected="a script that trains with `fit` or with `tfrun.TrainState`",
        )
