"""Runs a script's first steps on each number of workers, and compares."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from tfrun.job.trial_request import Trial, folder, no_step
from tfrun.tools.child_job import QUIET, Experiment, Say, ends_children_on_signals, failed
from tfrun.tools.parity.compare import StepRecord, compare
from tfrun.tools.parity.report import ParityReport


@dataclass(frozen=True, kw_only=True)
class Parity(Experiment):
    """What a parity check runs: so many `steps` on each number of workers in `worlds`.

    The first of these is what the others are compared with; `tolerance` is the largest relative
    difference in a loss or metric that is none. With `replicas` stated all bits have to be equal.
    """

    worlds: tuple[int, ...]
    steps: int
    tolerance: float
    replicas: int | None = None


def run_parity(parity: Parity, say: Say) -> ParityReport:
    """Runs it and returns what was found; `say` gets a line for each run.

    Raises:
      TfrunError: TFRUN-401 when a run fails, TFRUN-801 when it makes no step.
    """
    with ends_children_on_signals():
        runs = {workers: _run(parity, workers, say) for workers in parity.worlds}
    first = runs[parity.worlds[0]]
    tolerance = 0.0 if parity.replicas else parity.tolerance
    return ParityReport(
        script=parity.program[0],
        seed=parity.seed,
        tolerance=tolerance,
        replicas=parity.replicas,
        has_random_layers=any("seed_generator_state" in name for name in first[0].sketches),
        runs=tuple(
            compare(workers, first, records, tolerance) for workers, records in runs.items()
        ),
    )


def _run(parity: Parity, workers: int, say: Say) -> list[StepRecord]:
    count = f"{workers} worker" + ("s" if workers != 1 else "")
    say(f"{count}: {parity.steps} steps …")
    wanted = Trial(steps=parity.steps, record=True).to_environment()
    name = f"workers-{workers}"
    options = ("-n", str(workers), *QUIET)
    if parity.replicas:  # TensorFlow's kernels add up in another order with other threads
        options += ("--replicas", str(parity.replicas), "--threads-per-worker", "1")
    with parity.job(name, *options, wanted=wanted) as job:
        if code := job.wait():
            raise failed(job, code, f"on {count} the job")
    records = _records(job.run_dir)
    if not records or not records[-1].step:
        raise no_step()
    return records


def _records(run_dir: Path) -> list[StepRecord]:
    """Returns how a run stood after each step, in order: losses, metrics, sketches of variables."""
    found = []
    for path in folder(run_dir).glob("step-*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            header = file.metadata()
            sketches = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found.append(
            StepRecord(
                step=int(path.stem.partition("-")[2]),
                logs={name: float(value) for name, value in json.loads(header["logs"]).items()},
                sketches=sketches,
                sizes=json.loads(header["sizes"]),
                digests=json.loads(header["digests"]),
            )
        )
    return sorted(found, key=lambda record: record.step)
