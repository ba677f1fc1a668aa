"""Tries batches, each in a short real job, until the best one is known."""

from __future__ import annotations

import json
import signal
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.trial_request import Trial, fixed_batch, folder, no_step
from tfrun.tools.child_job import QUIET, Experiment, Say, ends_children_on_signals, failed
from tfrun.tools.tune.report import TuneReport, scaled
from tfrun.tools.tune.search import TriedBatch, best, ended_at_most, next_batch

UNTIMED = 3  # the first step is traced, and the next ones still fill buffers
LOG_BYTES = 20_000
_TYPES = ("ResourceExhaustedError", "MemoryError")
_PHRASES = (
    "OOM when allocating",
    "bad_alloc",
    "Cannot allocate memory",
    "Unable to allocate",
    "out of memory",
    "memory ran out",
    "RESOURCE_EXHAUSTED",
)
# What a process dies of that does not look whether it has got its memory.
_SIGNALS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Tune(Experiment):
    """What a tuning runs, each batch on so many `workers`.

    `start` and `most` are the first and the largest batch of a worker, of which so many `steps` are
    timed; `memory` are bytes that a worker may use at once, 0 is no limit. `worlds` are the numbers
    of workers for which to say what follows.
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
    tried: dict[int, TriedBatch] = {}
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


def _try(tune: Tune, batch: int) -> tuple[TriedBatch, dict[str, Any] | None]:
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


def outcome(
    batch: int,
    found: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    log: str,
    *,
    limited: bool,
) -> TriedBatch | None:
    """Returns the result; None when the job failed for another reason than memory.

    `found` is what the chief has written, if it came to that, `log` the end of what the workers
    have. Where their memory was `limited`, SIGKILL, or a crash, came of that.
    """
    if found is not None and found["outcome"] == "measured":
        rates = [n / s for n, s in zip(found["counts"], found["seconds"], strict=True) if s > 0]
        return TriedBatch(
            batch=batch,
            rate=statistics.median(rates),
            milliseconds=1000 * statistics.median(found["seconds"]),
            memory=found["memory"],
        )
    if found is not None:
        return TriedBatch(batch=batch, ended_by="data", how=f"{found['samples']} samples in all")
    how = _out_of_memory(events, log, limited)
    return TriedBatch(batch=batch, ended_by="memory", how=how) if how else None


def _out_of_memory(events: Sequence[Mapping[str, Any]], log: str, limited: bool) -> str:
    for event in events:
        match reports.of(event):
            case reports.Error(type=kind, message=text):
                if kind in _TYPES or any(phrase in text for phrase in _PHRASES):
                    return kind
        if event["event"] == "worker_exited" and event["code"] < 0:
            if "memory ran out" in event["status"]:
                return "killed for lack of memory"
            refused = limited or any(phrase in log for phrase in _PHRASES)
            if refused and -event["code"] in _SIGNALS:
                return str(ExitStatus(code=event["code"]))
    return ""


def _log(run_dir: Path) -> str:
    """The end of each worker's log."""
    logs = sorted(Path(run_dir, "logs").glob("worker-*.log"))
    return "\n".join(log.read_text(errors="replace")[-LOG_BYTES:] for log in logs)


def _line(result: TriedBatch) -> str:
    if result.rate is None:
        return f"batch {result.batch}: {result.ended_by} ends here ({result.how})"
    return f"batch {result.batch}: {result.rate:,.0f} samples/s"
