"""The progress of a job's training, as its events tell of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tfrun.job import reports
from tfrun.observe.events import JobEvent
from tfrun.observe.step_reports import PARTS, Numbers, logs_of, mean_split
from tfrun.observe.time_series import Series, number

MAX_EPOCHS = 1000
HEAT_COLUMNS = 128


class TrainingView:
    """The training that runs, and the curves of all in the run directory."""

    def __init__(self) -> None:
        self.series, self.own, self.step = Series(), Series(HEAT_COLUMNS), Series(HEAT_COLUMNS)
        self.epochs: deque[dict[str, Any]] = deque(maxlen=MAX_EPOCHS)
        self.batch: float | None = None
        self._logs: dict[str, None] = {}
        self._all_epochs: int | None = None
        self._epoch_steps: int | None = None
        self._place: dict[str, int] = {}
        self._last: JobEvent = {}
        self._last_logs: Mapping[str, Any] = {}
        self._staleness: list[int] = []

    def new_job(self) -> None:
        """Another job goes on in this run directory; its curves go on as well."""
        self._place, self._last, self._staleness = {}, {}, []

    def report(self, report: reports.Report | None, time: float) -> None:
        """Takes the chief's reports on its training as a whole."""
        match report:
            case reports.Training():
                self.batch = number(report.global_batch)
            case reports.FitBegin():
                self._all_epochs, self._epoch_steps = report.epochs, report.steps
            case reports.EpochEnd():
                self._epoch_ended(report, time)
            case reports.Staleness(histogram=counts):
                last = max((late for late, count in enumerate(counts) if count), default=-1)
                self._staleness = counts[: last + 1]

    def _epoch_ended(self, report: reports.EpochEnd, time: float) -> None:
        names = ("epoch", "seconds", "steps", "samples")
        found = {name: number(getattr(report, name)) for name in names}
        logs = logs_of(report.logs)
        self.epochs.append({**found, "time": time, "logs": logs})
        # Executions of several steps may go over the end of an epoch.
        self._epoch_steps = max(self._epoch_steps or 0, report.steps) or None
        values = {f"logs/{name}": number(value) for name, value in logs.items()}
        only_now = {k: v for k, v in values.items() if k.startswith("logs/val_")}
        if only_now:  # the others are a part of the progress
            self._logs.update(dict.fromkeys(only_now))
            self.series.add(time, only_now)

    def progress(self, event: JobEvent, tasks: Sequence[str]) -> None:
        """Takes a "progress" event: what the reports of these tasks, in rank order, add up to."""
        time = event["time"]
        self._place = {name: event[name] for name in ("epoch", "in_epoch", "step")}
        self._last, self._last_logs = event, event.get("logs") or self._last_logs
        if not event["steps"]:
            return
        values = {name: number(event["split"].get(name)) for name in PARTS}
        logs = {f"logs/{k}": number(v) for k, v in (event.get("logs") or {}).items()}
        self._logs.update(dict.fromkeys(logs))
        seconds = number(event["step_seconds"])
        rate = self.batch / seconds if self.batch and seconds else None
        places = {"step": float(event["step"]), "epoch": float(event["epoch"])}
        more = {"samples_per_second": rate, "workers": float(event["workers"])}
        self.series.add(time, {**places, **more, "step_seconds": seconds, **values, **logs})
        each = event.get("tasks") or {}
        for series, name in ((self.own, "own_ms"), (self.step, "step_ms")):
            found = zip(tasks, each.get(name) or (), strict=False)
            values = {task: None if ms is None else ms / 1000 for task, ms in found}
            if values:
                series.add(time, values)

    def to_json(self, numbers: Mapping[str, Numbers], chief: str) -> dict[str, Any] | None:
        """Returns where the training is, which is the chief's place; None before its first step."""
        mine, last = numbers.get(chief), self._last
        place, logs = self._place, self._last_logs
        if mine is not None:
            place = {"epoch": mine.epoch, "in_epoch": mine.in_epoch, "step": mine.step}
            logs = mine.logs or logs
        if not place:
            return None
        seconds = (mine and mine.step_seconds) or number(last.get("step_seconds"))
        steps, epochs = self._epoch_steps, self._all_epochs
        steps = steps and max(steps, place["in_epoch"])
        done = left = None
        if steps and epochs:
            fraction = (place["epoch"] * steps + place["in_epoch"]) / (steps * epochs)
            done = min(1.0, fraction)
            left = (1 - done) * steps * epochs * seconds if seconds else None
        splits = [found.split for found in numbers.values() if found.steps]
        split = mean_split(splits) if splits else dict(last.get("split") or {})
        return {
            **{"epoch": place["epoch"], "epochs": epochs, "step_in_epoch": place["in_epoch"]},
            **{"steps_per_epoch": steps, "step": place["step"]},
            "done": done if done is None else round(done, 5),
            "seconds_left": left if left is None else round(left, 1),
            "global_batch": self.batch and int(self.batch),
            "logs": dict(logs),
            "samples_per_second": self.batch and seconds and round(self.batch / seconds, 1),
            "steps_per_second": seconds and round(1 / seconds, 3),
            "step_seconds": seconds,
            "split": split or dict.fromkeys(PARTS),
            **({"staleness": list(self._staleness)} if self._staleness else {}),
        }

    def series_json(self) -> dict[str, Any]:
        """Returns the curves."""
        times, columns = self.series.columns()
        names = ("step", "epoch", "samples_per_second", "step_seconds", *PARTS, "workers")
        nothing = [None] * len(times)
        logs = {name[5:]: columns.get(name, nothing) for name in self._logs}
        return {
            "time": times,
            **{name: columns.get(name, nothing) for name in names},
            "logs": logs,
        }

    def heat_json(self, tasks: Sequence[str]) -> dict[str, Any]:
        """Returns the seconds of a step by worker and time."""
        times, own = self.own.columns()
        _, step = self.step.columns()
        nothing = [None] * len(times)
        return {
            "tasks": list(tasks),
            "time": times,
            "own": [own.get(task, nothing) for task in tasks],
            "step": [step.get(task, nothing) for task in tasks],
        }


def summed(
    latest: Mapping[str, Numbers], chief: Sequence[Numbers], tasks: Sequence[str]
) -> dict[str, Any]:
    """Returns the fields of a "progress" event.

    Args:
      latest: each worker's newest report.
      chief: the chief's reports since the event before.
      tasks: the workers of the round, in rank order.
    """
    now, aside = chief[-1], {}
    for found in chief:
        for kind, seconds in found.aside.items():
            aside[kind] = round(aside.get(kind, 0.0) + seconds, 4)
    logs = next((found.logs for found in reversed(chief) if found.logs), {})
    steps, seconds = sum(f.steps for f in chief), sum(f.seconds for f in chief)
    own = [_ms(latest[task].own_seconds) if task in latest else None for task in tasks]
    step = [_ms(latest[task].step_seconds) if task in latest else None for task in tasks]
    return {
        **{"epoch": now.epoch, "in_epoch": now.in_epoch, "step": now.step},
        **{"steps": steps, "seconds": round(seconds, 4), "workers": len(tasks)},
        "step_seconds": round(seconds / steps, 6) if steps else None,
        "split": mean_split([found.split for found in latest.values() if found.steps]),
        "logs": dict(logs),
        "tasks": {
            "own_ms": own,
            "step_ms": step,
            "rss_mb": [latest[task].rss >> 20 if task in latest else None for task in tasks],
            "cpu": [latest[task].cpu if task in latest else None for task in tasks],
        },
        **({"aside": aside} if aside else {}),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{1000 * seconds:.4g}")
