"""Watches a running job: keeps its view, sums its workers' reports up, and names stragglers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrun.job.reports import StepsMade
from tfrun.observe import step_reports, stragglers
from tfrun.observe.events import EventLog, read_events
from tfrun.observe.job_view import JobView, reduce
from tfrun.observe.step_reports import Numbers
from tfrun.observe.view_training import summed

SECONDS = 1.0  # between two events that sum up
PART = 1 / 600  # of the job's age, as soon as that is more: some 3,600 events on the first day
TASKS_IN_EVENT = 64  # with more workers, fewer events hold the numbers of each


class Monitor:
    """Hears every event, and every report of a worker's steps.

    Args:
      events: the job's event log; what is in it already belongs to the view.
      run_dir: the run directory.
    """

    def __init__(self, events: EventLog, run_dir: Path) -> None:
        self._events = events
        self._view = view_of(run_dir)
        self._latest: dict[str, Numbers] = {}
        self._pending: list[Numbers] = []
        self._suspicions: dict[str, stragglers.Suspicion] = {}
        self._began = self._told = time.time()
        self._count = 0
        self._usual = 0.0, stragglers.usual_of([])  # when it was computed, and what most take
        self._lock = threading.RLock()
        events.listeners.append(self.event)

    def view(self, *, heat: bool = False) -> dict[str, Any]:
        """Returns the status of the job as it is now; see `JobView.to_json`. From any thread."""
        with self._lock:
            return self._view.to_json(time.time(), live=True, numbers=self._latest, heat=heat)

    def event(self, event: Mapping[str, Any]) -> None:
        """Takes an event that has been written."""
        is_round = event["event"] == "round"
        with self._lock:
            if is_round and event["state"] != "running":
                self._sum_up()
            self._view.add(event)
            if is_round and event["state"] == "running":
                self._latest, self._suspicions = {}, {}

    def reported(self, task: str, report: StepsMade) -> str | None:
        """Takes a report of a worker's steps; returns what a person is to be told."""
        now = time.time()
        found = step_reports.read(now, report)
        with self._lock:
            if found is None or task not in self._view.workers.tasks:
                return None
            if found.steps or task not in self._latest:
                self._latest[task] = found
            if task == self._view.chief:
                self._pending.append(found)
                if now - self._told >= max(SECONDS, PART * (now - self._began)):
                    self._sum_up()
            return self._judge(task) if found.steps else None

    def _sum_up(self) -> None:
        """Writes the event that sums up what has been reported since the last one."""
        if not self._pending:
            return
        tasks, pending, self._pending = self._view.tasks, self._pending, []
        fields = summed(self._latest, pending, tasks)
        if self._count % max(1, math.ceil(len(tasks) / TASKS_IN_EVENT)):
            del fields["tasks"]
        self._count, self._told = self._count + 1, time.time()
        self._events.add(step_reports.EVENT, round=self._view.rounds.newest["number"], **fields)

    def _judge(self, task: str) -> str | None:
        before, now = self._suspicions.get(task, stragglers.Suspicion()), time.time()
        if len(self._latest) >= stragglers.MANY:
            # A thousand workers report each second: not each is compared with all the others.
            if now - self._usual[0] > SECONDS:
                self._usual = now, stragglers.usual_of(self._latest.values())
            if not stragglers.may_count(self._latest[task], before, self._usual[1]):
                return None
        self._suspicions[task], verdict = stragglers.judge(task, before, self._latest)
        if verdict is None:
            return None
        if not verdict.slow:
            self._events.add("straggler_over", task=task)
            return None
        fields = {
            **{"task": task, "slow_at": verdict.slow_at, "factor": verdict.factor},
            **{"own_seconds": verdict.own_seconds, "usual_seconds": verdict.usual_seconds},
            **({"network_to": verdict.network_to} if verdict.network_to else {}),
        }
        self._events.add("straggler", **fields)
        return stragglers.sentence(fields)


def view_of(run_dir: Path) -> JobView:
    """Returns the view of a run directory's job, from its events."""
    try:
        events = read_events(run_dir / "events.jsonl")
    except OSError:
        events = []
    return reduce(events, str(run_dir))
