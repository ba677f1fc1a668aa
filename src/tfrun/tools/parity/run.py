"""Runs a script's first steps on each number of workers, and compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfrun.job.errors import UsageError
from tfrun.job.trial import Trial, no_step
from tfrun.tools.child_job import Job, ends_children_on_signals, failed
from tfrun.tools.parity.compare import compare
from tfrun.tools.parity.records import Record, read
from tfrun.tools.parity.report import Report

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What to do.

    Attributes:
      program: the script and its arguments.
      worlds: the numbers of workers; the first one is what the others are compared with.
      steps: training steps in each run.
      tolerance: the largest relative difference in a loss or metric that is none.
      seed: of all runs.
      deterministic: the jobs' own option.
      folder: where the runs write, an absolute path.
      timeout: seconds that a run may take.
    """

    program: tuple[str, ...]
    worlds: tuple[int, ...]
    steps: int
    tolerance: float
    seed: int
    deterministic: bool
    folder: Path
    timeout: float


def parse_worlds(text: str) -> tuple[int, ...]:
    """Reads "1,2,4".

    Raises:
      UsageError: TFRUN-105 where it is no list of at least two different numbers of workers.
    """
    words = text.split(",")
    if all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words):
        worlds = tuple(dict.fromkeys(int(word) for word in words))
        if len(worlds) > 1 and min(worlds) > 0:
            return worlds
    raise UsageError(
        "TFRUN-105",
        f"{text!r:.60} does not say which numbers of workers to compare",
        where="-n",
        expected="at least two numbers from 1, such as 1,2,4",
    )


def run_parity(parity: Parity, say: Say) -> Report:
    """Runs it and returns what was found; `say` gets a line for each run.

    Raises:
      TfrunError: TFRUN-401 when a run fails, TFRUN-801 when it makes no step.
    """
    with ends_children_on_signals():
        runs = {workers: _run(parity, workers, say) for workers in parity.worlds}
    first = runs[parity.worlds[0]]
    return Report(
        script=parity.program[0],
        seed=parity.seed,
        tolerance=parity.tolerance,
        has_random_layers=any("seed_generator_state" in name for name in first[0].sketches),
        runs=tuple(
            compare(workers, first, records, parity.tolerance) for workers, records in runs.items()
        ),
    )


def _run(parity: Parity, workers: int, say: Say) -> list[Record]:
    count = f"{workers} worker" + ("s" if workers != 1 else "")
    say(f"{count}: {parity.steps} steps …")
    options = ["-n", str(workers), "--seed", str(parity.seed), "--max-restarts", "0"]
    options += ["--checkpoint-every", "off", "--snapshot-every", "0"]
    options += [*["--deterministic"] * parity.deterministic, "--", *parity.program]
    trial = Trial(steps=parity.steps, record=True)
    with Job(
        options,
        parity.folder / f"workers-{workers}",
        timeout=parity.timeout,
        wanted=trial.to_environment(),
    ) as job:
        if code := job.wait():
            raise failed(job, code, f"on {count} the job")
    records = read(job.run_dir)
    if not records or not records[-1].step:
        raise no_step()
    return records
