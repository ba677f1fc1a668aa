"""Handles the end of a task that another process can replace. Pure.

TensorFlow's coordinator gives the work of a worker that has gone to another one and waits for it
to be back at its address. A parameter server is not replaced in this way: what it held is gone.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.rounds.actions import GoOnWithout, ReplaceTask, Result
from tfrun.control.rounds.after_failure import with_exit_failure
from tfrun.control.rounds.events import StepsApplied, TaskExited
from tfrun.control.rounds.model import Round
from tfrun.job.first_failure import Failure
from tfrun.job.restart_policy import Cause, cause_of

STEADY_SECONDS = 10.0  # who has served for so long may end once more, whatever the others do


def replaced(round: Round, event: TaskExited) -> Result | None:
    """Has the task started again; None when it cannot be replaced, or has ended too often."""
    if not any(task.name == event.task and task.replaceable for task in round.tasks):
        return None
    failure = with_exit_failure(replace(round, failures=()), event).failures[0]
    if round.is_aside(event.task):
        if event.status.code == 0:
            return replace(round, exits={**round.exits, event.task: event.status}), ()
        if cause_of(failure) is Cause.SCRIPT:
            return _without(round, event, failure)
    times, last = round.replaced.get(event.task, (0, event.time))
    times = times + 1 if event.time - last < STEADY_SECONDS else 1
    if times > round.replacements:
        return _without(round, event, failure) if round.is_aside(event.task) else None
    round = replace(round, replaced={**round.replaced, event.task: (times, event.time)})
    return round, (ReplaceTask(task=event.task, failure=failure),)


def _without(round: Round, event: TaskExited, failure: Failure) -> Result:
    round = replace(round, exits={**round.exits, event.task: event.status})
    return round, (GoOnWithout(failure=failure),)


def steps_applied(round: Round, event: StepsApplied) -> Result:
    """Progress: whoever ends from now on ends for the first time."""
    if event.step <= round.applied:
        return round, ()
    return replace(round, applied=event.step, replaced={}), ()
