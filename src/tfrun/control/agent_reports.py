"""Turns the reports of workers and agents into events of their round. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrun.control.protocol import messages
from tfrun.control.recovery import step_of
from tfrun.control.rounds import events
from tfrun.control.rounds.model import Stands


def event_of(
    task: str, when: float, report: Mapping[str, Any], *, chief: str
) -> events.Event | None:
    """Returns what the round is to be told; None for what does not concern it.

    Args:
      task: who reports.
      when: seconds since the epoch.
      report: `{"kind": …, …}`.
      chief: the task that saves the job's state.
    """
    match report.get("kind"):
        case "done":
            last = report.get("collectives")
            return events.TaskDone(task=task, collectives=last if type(last) is int else None)
        case "stands":
            number, mark, where = (report.get(name) for name in ("number", "mark", "where"))
            if type(number) is not int:
                return None
            return Stands(task=task, number=number, mark=str(mark), where=str(where))
        case "error":
            return events.TaskRaised(task=task, time=when, error=report)
        case "snapshot":
            return events.TaskSaved(task=task)
        case "job_saved":
            return events.JobSaved(step=step_of(report))
        case "job_not_saved":
            reason, for_good = str(report.get("reason")), bool(report.get("for_good"))
            return events.JobNotSaved(reason=reason, for_good=for_good)
        case "applied" if task == chief and (step := step_of(report)) is not None:
            return events.StepsApplied(step=step)
        case "resumed" | "first_step" if task == chief:
            return events.ChiefResumed()
    return None


def memory_event(message: messages.MemorySaved) -> events.Event:
    """Returns what the round is to be told of a state that an agent was to save."""
    if message.problem:
        return events.JobNotSaved(reason=message.problem)
    return events.JobSaved(step=message.step if message.step >= 0 else None)
