"""Builds what a person sees of a job from its events and its workers' newest reports.

`JobView.to_json()` is the status of a job everywhere: `GET /status`, `tfrun status --json`, the
page, the terminal. docs/observe.md describes its fields.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfrun.job import reports
from tfrun.observe.event_lines import told
from tfrun.observe.events import JobEvent
from tfrun.observe.goodput import Goodput
from tfrun.observe.step_reports import PARTS, Numbers
from tfrun.observe.time_series import number
from tfrun.observe.view_rounds import Rounds
from tfrun.observe.view_tasks import Workers
from tfrun.observe.view_training import TrainingView

VERSION = 1
MAX_EVENTS = MAX_STRAGGLERS = 200


class JobView:
    """A job as its events tell of it. A run directory may hold several, one after the other.

    Args:
      run_dir: the run directory, for people.
    """

    def __init__(self, run_dir: str = "") -> None:
        self._run_dir = run_dir
        self.training = TrainingView()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._begin({})

    def _begin(self, job: JobEvent) -> None:
        self.job, self.ended = job, dict[str, Any]()
        self.workers, self.rounds = Workers(), Rounds()
        self.goodput = Goodput(began=job.get("time", 0.0))
        self.numbers: dict[str, Numbers] = {}
        self._stragglers: deque[dict[str, Any]] = deque(maxlen=MAX_STRAGGLERS)
        self.training.new_job()

    @property
    def tasks(self) -> list[str]:
        """The workers of the newest round, in rank order."""
        return self.workers.names

    @property
    def chief(self) -> str:
        """The task whose place is the training's; "" before there is one."""
        return next(iter(self.tasks), "")

    def add(self, event: JobEvent) -> None:
        """Takes the next event; one of another version is left out."""
        if number(event.get("time")) is None or not isinstance(event.get("event"), str):
            return
        if event["event"] == "job" or not self.job:
            self._begin(event)
        try:
            self._add(event)
        except (KeyError, TypeError, ValueError, AttributeError):
            return
        if line := told(event):
            what = {"time": event["time"], "event": event["event"]}
            self._events.append({**what, "text": line[0], "level": line[1]})

    def _add(self, event: JobEvent) -> None:
        self.workers.add(event)
        self.rounds.add(event)
        self.goodput.add(event)
        match event["event"]:
            case "worker_report" if event["task"] == self.chief:
                self.training.report(reports.of(event), event["time"])
            case "worker_started":
                self.numbers.pop(event["task"], None)
            case "progress":
                self.training.progress(event, self.tasks)
                self._remember(event)
            case "straggler":
                found = {name: event[name] for name in ("task", "slow_at", "factor")}
                found["network_to"] = event.get("network_to")
                self._stragglers.append({**found, "since": event["time"], "until": None})
            case "straggler_over" | "round":
                self._over(event)
            case "job_ended":
                self.ended = dict(event)

    def _over(self, event: JobEvent) -> None:
        for found in self._stragglers:
            if found["until"] is None and event.get("task", found["task"]) == found["task"]:
                found["until"] = event["time"]

    def _remember(self, event: JobEvent) -> None:
        """The numbers of each worker, as far as an event holds them."""
        each, split = event.get("tasks") or {}, event["split"]
        for index, task in enumerate(self.tasks):
            own, step = _at(each.get("own_ms"), index), _at(each.get("step_ms"), index)
            if own is None or step is None:
                continue
            known = {part: split.get(part) for part in PARTS} if task == self.chief else {}
            self.numbers[task] = Numbers(
                **{"time": event["time"], "epoch": event["epoch"], "in_epoch": event["in_epoch"]},
                **{"step": event["step"], "steps": 1, "seconds": step / 1000},
                split={**dict.fromkeys(PARTS), **known, "communication": (step - own) / 1000},
                rss=int(_at(each.get("rss_mb"), index) or 0) << 20,
                cpu=_at(each.get("cpu"), index) or 0.0,
                logs=event.get("logs") or {} if task == self.chief else {},
            )

    def to_json(
        self,
        now: float,
        *,
        live: bool = False,
        runs: bool = False,
        numbers: Mapping[str, Numbers] | None = None,
        heat: bool = False,
    ) -> dict[str, Any]:
        """Returns the status.

        Args:
          now: seconds since the epoch.
          live: the job runs, and this is asked of it.
          runs: it may run, but could not be asked.
          numbers: the workers' newest reports, newer than the events.
          heat: with the times of each worker over time.
        """
        job, ended = self.job, self.ended
        known = {**self.numbers, **(numbers or {})}
        known = {task: known[task] for task in self.tasks if task in known}
        until = ended.get("time", now)
        started = number(job.get("started")) or number(job.get("time"))
        wanted = job.get("workers")
        wanted = wanted if isinstance(wanted, dict) else {}
        return {
            **{"version": VERSION, "now": now, "live": live, "run_dir": self._run_dir},
            "name": job.get("name") or Path(self._run_dir).name,
            "script": job.get("script"),
            "state": self._state(runs=live or runs),
            **{"started": started, "ended": ended.get("time")},
            "exit_code": ended.get("exit_code"),
            "seconds": round(until - started, 3) if started is not None else None,
            "round": self.rounds.newest,
            "workers": {
                "up": self.workers.up,
                "down": len(self.workers.tasks) - self.workers.up,
                "low": wanted.get("low"),
                "high": wanted.get("high"),
            },
            "agents": list(self.workers.agents.values()),
            "tasks": self.workers.to_json(known, self.training.batch),
            "training": self.training.to_json(known, self.chief),
            "series": self.training.series_json(),
            **({"heat": self.training.heat_json(self.tasks)} if heat else {}),
            "epochs": list(self.training.epochs),
            "rounds": list(self.rounds.rounds),
            "events": list(self._events),
            "recoveries": list(self.rounds.recoveries),
            "changes": self.rounds.changes,
            "successors": self.rounds.successors,
            "restarts": max(self.rounds.restarts, ended.get("restarts") or 0),
            "stragglers": list(self._stragglers),
            "failure": ended.get("failure"),
            "goodput": self.goodput.to_json(until),
            "checkpoint": self.rounds.checkpoint,
        }

    def _state(self, *, runs: bool) -> str:
        if self.ended:
            return str(self.ended.get("state"))
        return self.rounds.job_state() if runs else "lost"


def reduce(events: Iterable[JobEvent], run_dir: str = "") -> JobView:
    """Returns the view of a job's events."""
    view = JobView(run_dir)
    for event in events:
        view.add(event)
    return view


def _at(values: Any, index: int) -> float | None:
    return number(values[index]) if isinstance(values, list) and index < len(values) else None
