"""The workers and machines of a job, as its events tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfrun.job import reports
from tfrun.observe.events import JobEvent
from tfrun.observe.step_reports import Numbers, rank_order

_AGENT_STATES = {"agent_lost": "lost", "let_go": "let_go", "agent_back": "joined"}
_STATES = {reports.FirstStep: "running", reports.Done: "done", reports.Error: "failed"}


@dataclass(kw_only=True)
class TaskView:
    """One task, in the newest round that it took part in.

    Attributes:
      state: "starting", "running" (it has made a step), "done", "failed" or "gone".
      since: when that began, in seconds since the epoch.
      since_round: the round that its process was first in; an earlier one where it has stayed.
      status: how its process ended.
      slow_at: what it slows the others down with.
    """

    task: str
    agent: str
    pid: int
    round: int
    state: str
    since: float
    since_round: int = 0
    status: str | None = None
    slow_at: str | None = None


@dataclass(kw_only=True)
class Workers:
    """All workers of a job; `agents` are the machines by their agents' names."""

    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, TaskView] = field(default_factory=dict)
    _round: int = -1
    _names: list[str] | None = None
    _processes: dict[tuple[str, int], int] = field(default_factory=dict)  # of the round before

    @property
    def names(self) -> list[str]:
        """The tasks in rank order; sorted once, for a thousand of them report each second."""
        if self._names is None:
            self._names = sorted(self.tasks, key=rank_order)
        return self._names

    def add(self, event: JobEvent) -> None:
        """Takes the next event."""
        time = event["time"]
        match event["event"]:
            case "agent_joined":
                where = {"agent": event["agent"], "host": event["host"]}
                self.agents[event["agent"]] = {**where, "state": "joined", "since": time}
            case "agent_lost" | "let_go" | "agent_back" as kind if event["agent"] in self.agents:
                self.agents[event["agent"]] |= {"state": _AGENT_STATES[kind], "since": time}
            case "worker_started":
                self._started(event)
            case "worker_report" if event["task"] in self.tasks:
                if state := _STATES.get(type(reports.of(event))):
                    worker = self.tasks[event["task"]]
                    worker.state, worker.since = state, time
            case "worker_exited" if event["task"] in self.tasks:
                worker = self.tasks[event["task"]]
                if worker.state != "failed":
                    worker.state = "gone" if event["code"] else "done"
                asked = event["code"] and event.get("requested")
                worker.status = "stopped" if asked else event["status"]
                worker.since, worker.slow_at = time, None
            case "failure" if event["task"] in self.tasks:
                worker = self.tasks[event["task"]]
                worker.state, worker.since = "failed", time
            case "straggler" | "straggler_over" as kind if event["task"] in self.tasks:
                slow = kind == "straggler"
                self.tasks[event["task"]].slow_at = event["slow_at"] if slow else None

    def _started(self, event: JobEvent) -> None:
        if self._round < event["round"]:
            # A new round: those without a place in it are no workers any more.
            self._processes = {(t.agent, t.pid): t.since_round for t in self.tasks.values()}
            self._round, self.tasks = event["round"], {}
        self._names = None
        agent = str(event.get("agent") or next(iter(self.agents), ""))
        since = self._processes.get((agent, event["pid"]), int(event["round"]))
        self.tasks[event["task"]] = TaskView(
            task=event["task"],
            agent=agent,
            pid=event["pid"],
            round=event["round"],
            state="starting",
            since=event["time"],
            since_round=since,
        )

    @property
    def up(self) -> int:
        """How many run."""
        return sum(worker.status is None for worker in self.tasks.values())

    def to_json(self, numbers: Mapping[str, Numbers], batch: float | None) -> list[dict[str, Any]]:
        """Returns what `JobView` says of each task, with its last report and the global batch."""
        each = batch / len(self.tasks) if batch and self.tasks else None
        return [
            self._json_of(rank, self.tasks[name], numbers.get(name), each)
            for rank, name in enumerate(self.names)
        ]

    def _json_of(
        self, rank: int, worker: TaskView, numbers: Numbers | None, batch: float | None
    ) -> dict[str, Any]:
        seconds = numbers.step_seconds if numbers else None
        rate = 1 / seconds if seconds else None
        return {
            **{**vars(worker), "rank": rank},
            "host": self.agents.get(worker.agent, {}).get("host"),
            "reported": numbers and numbers.time,
            "epoch": numbers and numbers.epoch,
            "step": numbers and numbers.step,
            "steps_per_second": rate and round(rate, 3),
            "samples_per_second": rate and batch and round(rate * batch, 1),
            "step_seconds": seconds,
            "own_seconds": numbers and numbers.own_seconds,
            "network_seconds": numbers and numbers.network_seconds,
            "split": numbers and dict(numbers.split),
            "rss_bytes": (numbers and numbers.rss) or None,
            "cpu_share": numbers and numbers.cpu,
            "gpu_bytes": numbers and numbers.gpu,
        }
