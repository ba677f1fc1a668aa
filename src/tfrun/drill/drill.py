"""Runs a drill: the script undisturbed, then once under each fault."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfrun.drill import events as reading
from tfrun.drill.faults import FAULTS
from tfrun.drill.inject import Hit, inject
from tfrun.drill.job import Job
from tfrun.drill.report import Report
from tfrun.drill.verdict import Row, Run, judge
from tfrun.job.errors import TfrunError, UsageError

Say = Callable[[str], None]

EARLIER = 0.25  # of the training time, for the one repetition of a fault that came too late
LAST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Drill:
    """What to do.

    Attributes:
      program: the script and its arguments.
      workers: how many.
      faults: keys of `FAULTS`.
      kills: how often a fault that repeats comes.
      seed: of the jobs, of the moments and the victims.
      deterministic: the jobs' own option.
      folder: where the runs write, an absolute path.
      timeout: seconds that a run may take.
      limit: the most seconds that the first new step may take.
    """

    program: tuple[str, ...]
    workers: int
    faults: tuple[str, ...]
    kills: int
    seed: int
    deterministic: bool
    folder: Path
    timeout: float
    limit: float | None = None

    @property
    def options(self) -> list[str]:
        """The command line of each job, without its run directory."""
        stated = ["-n", str(self.workers), "--seed", str(self.seed)]
        return [*stated, *["--deterministic"] * self.deterministic, "--", *self.program]


def run_drill(drill: Drill, say: Say) -> Report:
    """Runs it and returns what happened; `say` gets a line for each run.

    Raises:
      TfrunError: TFRUN-401 when the undisturbed run fails, TFRUN-105 when it makes no step.
    """
    say("undisturbed …")
    with _ends_children_on_signals():
        with Job(drill.options, drill.folder / "undisturbed", timeout=drill.timeout) as job:
            undisturbed = _finish(job, time.time())
        _check(undisturbed, job)
        rows = tuple(_row(drill, fault, undisturbed, say) for fault in drill.faults)
    return Report(
        script=drill.program[0],
        workers=drill.workers,
        seed=drill.seed,
        seconds=round(undisturbed.seconds, 3),
        rows=rows,
    )


def _row(drill: Drill, fault: str, undisturbed: Run, say: Say) -> Row:
    seconds = reading.training_seconds(undisturbed.events)
    row = _run_fault(drill, fault, fault, undisturbed, seconds, say)
    if row.hit == row.times or row.broken:
        return row
    say(f"{fault}: the job was over too soon; again, with earlier moments")
    return _run_fault(drill, fault, f"{fault}-again", undisturbed, EARLIER * seconds, say)


def _run_fault(
    drill: Drill, fault: str, name: str, undisturbed: Run, seconds: float, say: Say
) -> Row:
    # Each fault has chances of its own: they do not change when others are left out.
    chance = random.Random(f"{drill.seed} {name}")
    times = drill.kills if FAULTS[fault].repeats else 1
    say(f"{fault}: {FAULTS[fault].what} …")
    began = time.time()
    with Job(drill.options, drill.folder / name, timeout=drill.timeout) as job:
        hits = inject(job, fault, times=times, seconds=seconds, chance=chance)
        for hit in hits if times == 1 else ():
            say(f"{fault}: {_whom(hit)} {hit.time - began:.1f} s after the start")
        run = _finish(job, began)
    return judge(
        fault,
        str(job.run_dir),
        run,
        hits,
        reading.weights(undisturbed.events),
        workers=drill.workers,
        times=times,
        limit=drill.limit,
    )


def _finish(job: Job, began: float) -> Run:
    code = job.wait()
    seconds = time.time() - began
    return Run(events=tuple(job.events()), code=code, timed_out=job.timed_out, seconds=seconds)


def _check(undisturbed: Run, job: Job) -> None:
    if undisturbed.code != 0:
        last = job.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        how = "took too long" if undisturbed.timed_out else f"ended with {undisturbed.code}"
        raise TfrunError(
            "TFRUN-401",
            f"without any fault the job {how}",
            where=str(job.log),
            fix="Make it run with tfrun alone first. It ends so: " + " | ".join(last),
        )
    if reading.first_step_at(undisturbed.events) is None:
        raise UsageError(
            "TFRUN-105",
            "the script makes no step that tfrun sees, so there is nothing to disturb",
            where="SCRIPT",
            expected="a script that trains with `fit` or with `tfrun.TrainState`",
        )


def _whom(hit: Hit) -> str:
    return " and ".join(worker.task.replace(":", " ") for worker in hit.victims)


@contextlib.contextmanager
def _ends_children_on_signals() -> Iterator[None]:
    """Has SIGTERM and SIGHUP unwind the stack, as Ctrl-C does, so that no job is left."""

    def leave(signum: int, _: object) -> None:
        raise SystemExit(128 + signum)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
