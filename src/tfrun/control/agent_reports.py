"""Turns the reports of workers and agents into events of their round. Pure."""

from __future__ import annotations

from tfrun.control.protocol import messages
from tfrun.control.rounds import events
from tfrun.control.rounds.model import Stands
from tfrun.job import reports


def event_of(task: str, when: float, report: reports.Report, *, chief: str) -> events.Event | None:
    """Returns what the round is to be told; None for what does not concern it.

    Args:
      task: who reports.
      when: seconds since the epoch.
      report: what it says.
      chief: the task that saves the job's state.
    """
    match report:
        case reports.Done(collectives=last):
            return events.TaskDone(task=task, collectives=last)
        case reports.WaitsInCollective(number=number, mark=mark, where=where):
            return Stands(task=task, number=number, mark=mark, where=where)
        case reports.Error():
            return events.TaskRaised(task=task, time=when, error=report)
        case reports.SnapshotTaken():
            return events.TaskSaved(task=task)
        case reports.StateSaved(step=step):
            return events.JobSaved(step=step)
        case reports.StateNotSaved(reason=reason, for_good=for_good):
            return events.JobNotSaved(reason=reason, for_good=for_good)
        case reports.Applied(step=step) if task == chief:
            return events.StepsApplied(step=step)
        case reports.Resumed() | reports.FirstStep() if task == chief:
            return events.ChiefResumed()
    return None


def memory_event(message: messages.MemorySaved) -> events.Event:
    """Returns what the round is to be told of a state that an agent was to save."""
    if message.problem:
        return events.JobNotSaved(reason=message.problem)
    return events.JobSaved(step=message.step if message.step >= 0 else None)
