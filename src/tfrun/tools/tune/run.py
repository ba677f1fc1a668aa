"""Tries batches, each in a short real job, until the best one is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.trial_request import Trial, fixed_batch, folder, no_step
from tfrun.tools.child_job import QUIET, Experiment, Say, ends_children_on_signals, failed
from tfrun.tools.tune.outcome import outcome
from tfrun.tools.tune.report import TuneReport
from tfrun.tools.tune.scale import scaled
from tfrun.tools.tune.search import Result, best, ended_at_most, next_batch

UNTIMED = 3  # the first step is traced, and the next ones still fill buffers
LOG_BYTES = 20_000


@dataclass(frozen=True, kw_only=True)
class Tune(Experiment):
    """What a tuning runs.

    Attributes:
      workers: on how many each batch is tried.
      start: the first batch of a worker.
      most: the largest one.
      steps: that are timed.
      memory: bytes that a worker may use at once; 0 is no limit.
      worlds: the numbers of workers for which to say what follows.
    """

    workers: int
    start: int
    most: int
    steps: int
    memory: int
    worlds: tuple[int, ...]


def run_tune(tune: Tune, say: Say) -> TuneReport:
    """Runs it; `say` gets a line for each batch.

    Raises:
      TfrunError: TFRUN-401 when a job fails for another reason than memory, TFRUN-403 when not
        even a batch of 1 fits, TFRUN-801 when it makes no step, TFRUN-802 when its batch cannot
        be changed.
    """
    tried: dict[int, Result] = {}
    found: dict[str, Any] = {}
    with ends_children_on_signals():
        while batch := next_batch(tried, start=tune.start, most=tune.most):
            tried[batch], left = _try(tune, batch)
            found = left or found
            say(_line(tried[batch]))
    chosen = best(tried)
    if chosen is None:
        raise TfrunError(
            "TFRUN-403",
            f"not even a batch of {min(tried)} on each worker fits",
            where=str(tune.folder),
            fix="Give a worker more memory, or the script a smaller model",
        )
    return TuneReport(
        script=tune.program[0],
        workers=tune.workers,
        results=tuple(tried[batch] for batch in sorted(tried)),
        chosen=chosen,
        most=tune.most if ended_at_most(tried, most=tune.most) else None,
        scaled=tuple(
            scaled(
                chosen.batch,
                tune.worlds,
                samples=found["samples"],
                stated=found["stated"],
                rate=found["rate"],
            )
        ),
    )


def _try(tune: Tune, batch: int) -> tuple[Result, dict[str, Any] | None]:
    """Returns what came of a batch, and what was measured."""
    trial = Trial(
        steps=UNTIMED + tune.steps,
        batch=batch * tune.workers,
        untimed=UNTIMED,
        memory=tune.memory,
    )
    name, wanted = f"batch-{batch}", trial.to_environment()
    with tune.job(name, "-n", str(tune.workers), *QUIET, wanted=wanted) as job:
        code = job.wait()
    path = folder(job.run_dir) / "found.json"
    found = json.loads(path.read_text()) if path.exists() else None
    events = job.events()
    limited = tune.memory > 0
    if result := outcome(batch, found, events, _log(job.run_dir), limited=limited):
        return result, found if result.rate is not None else None
    if code == 0:
        raise no_step()
    errors = (found for found in map(reports.of, events) if isinstance(found, reports.Error))
    if any("TFRUN-802" in error.message for error in errors):
        raise fixed_batch()
    raise failed(job, code, f"with a batch of {batch} the job")


def _log(run_dir: Path) -> str:
    """The end of each worker's log."""
    logs = sorted(Path(run_dir, "logs").glob("worker-*.log"))
    return "\n".join(log.read_text(errors="replace")[-LOG_BYTES:] for log in logs)


def _line(result: Result) -> str:
    if result.rate is None:
        return f"batch {result.batch}: {result.ended_by} ends here ({result.how})"
    return f"batch {result.batch}: {result.rate:,.0f} samples/s"
