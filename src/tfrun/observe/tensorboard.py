"""`--tensorboard DIR`: writes the job's events for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrun.job import reports
from tfrun.observe.events import JobEvent
from tfrun.observe.tensorboard_file import EventFile, Scalar
from tfrun.observe.time_series import metric

FLUSH_SECONDS = 2.0


class Board:
    """Writes into `DIR/<run's name>`: the one writer there, in the launcher.

    Tags by step of the optimizer: `step/<metric>`, `samples per second/…`, `step seconds/…`,
    `own seconds/<worker>`. By epoch: `epoch/<metric>`, also those of the validation.
    """

    def __init__(self, folder: Path, run_dir: Path) -> None:
        """Args:
        folder: DIR.
        run_dir: the run directory, whose name becomes the run's in TensorBoard.

        Raises:
          OSError: it cannot be written.
        """
        self._name = run_dir.name
        self._file = EventFile(folder / run_dir.name)
        self._job: JobEvent = {}
        self._batch: float | None = None
        self._step, self._flushed = 0, 0.0
        self._has_hyperparameters = False

    def event(self, event: JobEvent) -> None:
        """Takes an event that has been written; one that it does not know says nothing here."""
        when = event["time"]
        match event:
            case {"event": "job"}:
                self._job = event
            case {"event": "progress", "step": int()}:
                self._step = event["step"]
                self._file.scalars(when, self._step, by_step(event, self._batch))
            case {"event": "worker_report"}:
                self._report(when, reports.of(event))
            case {"event": "recovered", "seconds": seconds}:
                self._file.scalars(when, self._step, metrics({"recovery seconds": seconds}))
            case {"event": "job_ended"}:
                self._file.ended(when, succeeded=event.get("exit_code") == 0)
        if when - self._flushed > FLUSH_SECONDS:
            self._flushed = when
            self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _report(self, when: float, report: reports.Report | None) -> None:
        match report:
            case reports.Training():
                self._training(when, report)
            case reports.EpochEnd(epoch=epoch, logs=logs):
                values = {f"epoch/{name}": value for name, value in metrics(logs).items()}
                self._file.scalars(when, epoch, values)

    def _training(self, when: float, report: reports.Training) -> None:
        self._batch = report.global_batch
        if not self._has_hyperparameters:  # of the first training
            self._has_hyperparameters = True
            self._file.hyperparameters(when, self._name, hyperparameters(self._job, report))


def by_step(event: JobEvent, batch: float | None) -> dict[str, float]:
    """Returns the values of a "progress" event by tag; `batch` is the global one."""
    values = {f"step/{name}": value for name, value in metrics(event.get("logs") or {}).items()}
    seconds = metric(event.get("step_seconds"))
    if seconds:
        values["step seconds/all"] = seconds
        values["steps per second"] = 1 / seconds
        if batch:
            values["samples per second/all"] = batch / seconds
    for part, value in metrics(event.get("split") or {}).items():
        values[f"step seconds/{part}"] = value
    each = event.get("tasks") or {}
    for name, tag in (("own_ms", "own seconds"), ("step_ms", "samples per second")):
        times = each.get(name) or []
        for rank, ms in enumerate(times):
            if not isinstance(ms, int | float) or ms <= 0:
                continue
            if name == "own_ms":
                values[f"{tag}/worker {rank}"] = ms / 1000
            elif batch:
                values[f"{tag}/worker {rank}"] = batch / len(times) / (ms / 1000)
    return values


def hyperparameters(job: JobEvent, report: reports.Training) -> dict[str, Scalar]:
    """Returns what a training begins with, of the event "job" and the chief's report."""
    rate = report.rate
    candidates = {
        **{name: job.get(name) for name in ("script", "seed")},
        **{"global_batch": report.global_batch, "workers": report.workers},
        **{"learning_rate": rate.get("rate"), "learning_rate_rule": rate.get("rule")},
        "learning_rate_schedule": rate.get("schedule"),
    }
    return {name: v for name, v in candidates.items() if isinstance(v, str | int | float)}


def metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns those values that are numbers, or a loss that is none."""
    found = {name: metric(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}
