"""The rounds of a job and its recoveries, as its events tell of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tfrun.job import reports
from tfrun.observe.events import JobEvent
from tfrun.observe.time_series import number

MAX_ROUNDS = 200
KINDS = ("recovered", "grown", "machine_preempted")


@dataclass(kw_only=True)
class Rounds:
    """All rounds of a job, the newest ones in full.

    Attributes:
      changes: how often a round has followed another one, by why, and by whether workers that were
        left stayed in their processes; and the seconds and steps that it took.
    """

    rounds: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_ROUNDS))
    recoveries: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_ROUNDS))
    changes: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            (*KINDS, "in_place", "afresh", "seconds", "lost_steps"), 0
        )
    )
    restarts: int = 0
    checkpoint: dict[str, Any] | None = None
    has_stepped: bool = False  # in the newest round
    _broken: bool = False
    _successors: dict[str, dict[str, Any]] = field(default_factory=dict)
    _given_up: bool = False

    def add(self, event: JobEvent) -> None:
        """Takes the next event."""
        time = event["time"]
        match event["event"]:
            case "round":
                self._entered(event["number"], event["state"], time)
            case "worker_started" if self.rounds:
                self.rounds[-1]["workers"] += 1
            case "failure" if self.rounds:
                self._broken = True
                self.rounds[-1]["how"] = self.rounds[-1]["how"] or event["how"]
            case "recovered" | "grown" | "machine_preempted" as kind:
                found = {name: event.get(name) for name in ("seconds", "step", "lost_steps")}
                found["in_place"] = bool(event.get("in_place"))
                self.recoveries.append({"time": time, **found, "kind": kind})
                for name in (kind, "in_place" if found["in_place"] else "afresh"):
                    self.changes[name] += 1
                for name in ("seconds", "lost_steps"):
                    self.changes[name] += number(found[name]) or 0
                self.restarts, self._broken = event.get("restarts", self.restarts), False
            case "successor":
                self._successor(event)
            case "successors_given_up":
                self._given_up = True
            case "memory_saved" if event["step"] >= 0:
                self.checkpoint = {"step": event["step"], "time": time}
            case "worker_report":
                match reports.of(event):
                    case reports.FirstStep():
                        self.has_stepped = True
                    case (
                        reports.StateSaved(step=int(step))
                        | reports.CheckpointWritten(step=step)
                        | reports.CheckpointSaved(step=step)
                    ):
                        self.checkpoint = {"step": step, "time": time}

    def _entered(self, number: int, state: str, time: float) -> None:
        if not self.rounds or self.rounds[-1]["number"] != number:
            self.has_stepped = False
            begun = {"number": number, "began": time, "ended": None, "workers": 0, "how": None}
            in_place = number > 0 and state == "running"  # others prepare their processes first
            self.rounds.append({**begun, "in_place": in_place, "states": []})
        self.rounds[-1]["states"].append([state, time])
        if state == "ended":
            self.rounds[-1]["ended"] = time

    def _successor(self, event: JobEvent) -> None:
        known = self._successors.pop(event["successor"], {"pid": None})
        if event["state"] == "taken":
            self._given_up = False
        if event["state"] not in ("started", "ready"):
            return
        who = {name: event[name] for name in ("successor", "agent", "task")}
        state = {"started": "starting"}.get(event["state"], event["state"])
        pid = event.get("pid", known["pid"])
        self._successors[event["successor"]] = {
            **{**who, "pid": pid, "state": state, "since": event["time"]}
        }

    @property
    def successors(self) -> dict[str, Any]:
        """How many successors run their script, how many are ready, and each of them."""
        each = list(self._successors.values())
        states = [one["state"] for one in each]
        return {
            **{state: states.count(state) for state in ("starting", "ready")},
            "given_up": self._given_up,
            "each": each,
        }

    @property
    def newest(self) -> dict[str, Any]:
        """The number of the newest round, its state, and since when."""
        if not self.rounds:
            return {"number": 0, "state": "joining", "since": None}
        state, since = self.rounds[-1]["states"][-1]
        return {"number": self.rounds[-1]["number"], "state": state, "since": since}

    def job_state(self) -> str:
        """Returns what the job is doing."""
        round = self.newest
        broken = self._broken or round["number"] > 0
        match round["state"]:
            case "joining":
                return "waiting"
            case "preparing":
                return "recovering" if broken else "starting"
            case "running":
                if self.has_stepped:
                    return "training"
                return "recovering" if broken else "starting"
            case "leaving":
                return "recovering"
            case "ended" if self._broken:
                return "recovering"
        return "saving" if round["state"] == "saving" else "stopping"
