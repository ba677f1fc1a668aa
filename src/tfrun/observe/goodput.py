"""Computes where a job's wall time went: which share made steps that were kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfrun.job import reports
from tfrun.observe.events import JobEvent

# In the order in which they are shown.
KINDS = (
    *("training", "start", "tracing", "waiting", "recovery", "redone"),
    *("evaluation", "checkpoint", "end", "other"),
)


@dataclass(kw_only=True)
class Goodput:
    """Adds up a job's time, event by event.

    The parts, in seconds:
      training: steps, with their callbacks, that were kept.
      start: until the first step: imports, processes, the script's beginning.
      tracing: first steps, which TensorFlow traces; those of a recovery are a part of it.
      waiting: for machines.
      recovery: from the notice of a failure, or of a regroup, to the first new step.
      redone: steps that had been made before and were lost.
      evaluation: validation in `fit`.
      checkpoint: the time for which snapshots and checkpoints held training up.
      end: from the last step to the end of the job.
      other: the rest: the ends of epochs, the script's own parts between two trainings.
    """

    began: float = 0.0
    _parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    _steps: int = 0
    _waits_since: float | None = None
    _waited: float = 0.0  # since the last failure
    _first_step: float | None = None
    _last_step: float | None = None
    _start: float | None = None
    _round_traced: int = -1
    _broken_since: float | None = None
    _ended: float | None = None

    def add(self, event: JobEvent) -> None:
        """Takes the next event."""
        time = event["time"]
        match event["event"]:
            case "round":
                self._round(event["state"], time)
            case "recovered" | "grown" | "machine_preempted":
                self._parts["recovery"] += max(0.0, event["seconds"] - self._waited)
                self._broken_since, self._waited = None, 0.0
                self._redo(int(event.get("lost_steps") or 0))
            case "progress":
                self._progress(event, time)
            case "worker_report" if isinstance(reports.of(event), reports.FirstStep):
                if self._first_step is None:
                    self._first_step = time
                self._last_step = max(time, self._last_step or time)
            case "job_ended":
                self._ended = time

    def _round(self, state: str, time: float) -> None:
        if state == "joining":
            self._waits_since = time
        elif self._waits_since is not None:
            seconds, self._waits_since = time - self._waits_since, None
            self._parts["waiting"] += seconds
            self._waited += seconds
        if state == "leaving":
            self._broken_since = time
        elif state == "running" and self._broken_since is None:
            self._waited = 0.0

    def _progress(self, event: JobEvent, time: float) -> None:
        self._parts["training"] += event["seconds"]
        self._steps += event["steps"]
        aside = dict(event.get("aside") or {})
        if "tracing" in aside and event["round"] > self._round_traced:
            self._round_traced = event["round"]
            if event["round"]:
                del aside["tracing"]
            elif self._first_step is not None:
                before = self._parts["waiting"] + aside["tracing"]
                self._start = max(0.0, self._first_step - self.began - before)
        for kind in aside.keys() & self._parts.keys():
            self._parts[kind] += aside[kind]
        if event["steps"]:
            self._last_step = time

    def _redo(self, steps: int) -> None:
        if steps and self._steps:
            each = self._parts["training"] / self._steps
            seconds = min(steps * each, self._parts["training"])
            self._parts["training"] -= seconds
            self._parts["redone"] += seconds
            self._steps -= min(steps, self._steps)

    def to_json(self, now: float) -> dict[str, Any]:
        """Returns the seconds until now, or the job's end, the share of training, and the parts."""
        until = self._ended if self._ended is not None else now
        whole = max(0.0, until - self.began)
        parts = dict(self._parts)
        waits = 0.0 if self._waits_since is None else max(0.0, until - self._waits_since)
        parts["waiting"] += waits
        if self._broken_since is not None:
            broken = until - self._broken_since - self._waited - waits
            parts["recovery"] += max(0.0, broken)
        if self._start is not None:
            parts["start"] = self._start
        elif self._first_step is None:
            parts["start"] = max(0.0, whole - parts["waiting"] - parts["recovery"])
        if self._ended is not None and self._last_step is not None:
            after = self._ended - self._last_step
            room = whole - sum(parts.values())
            parts["end"] = max(0.0, min(after, room))
        parts["other"] = max(0.0, whole - sum(parts.values()))
        # The clocks of several machines, and rounding, may disagree by a little.
        share = min(1.0, parts["training"] / whole) if whole else 0.0
        return {
            "seconds": round(whole, 3),
            "share": round(share, 4),
            "parts": {kind: round(parts[kind], 3) for kind in KINDS},
        }
