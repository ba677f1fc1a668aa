"""Rounds made by hand, and what happens to them, for tests of the transitions."""

from __future__ import annotations

from collections.abc import Sequence

from tfrun.control.rounds.actions import Action
from tfrun.control.rounds.events import (
    AgentJoined,
    AgentLost,
    AgentPrepared,
    Event,
    TaskExited,
    TaskRaised,
    TaskSaved,
)
from tfrun.control.rounds.model import PlannedTask, Round
from tfrun.control.rounds.state_machine import step
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Error

# Two workers on the machine "a", one on "b".
TASKS = (
    PlannedTask(name="worker:0", agent="a"),
    PlannedTask(name="worker:1", agent="a"),
    PlannedTask(name="worker:2", agent="b"),
)
TWO = (PlannedTask(name="worker:0", agent="a"), PlannedTask(name="worker:1", agent="b"))
SERVED = (
    PlannedTask(name="chief:0", agent="a"),
    PlannedTask(name="worker:0", agent="a", runs="server", replaceable=True),
    PlannedTask(name="ps:0", agent="b", runs="server"),
)
JOIN_A, JOIN_B = AgentJoined(agent="a"), AgentJoined(agent="b")
READY_A, READY_B = AgentPrepared(agent="a", ports=(1, 2)), AgentPrepared(agent="b", ports=(3,))
RUNNING = (JOIN_A, JOIN_B, READY_A, READY_B)


def named(task: str | int) -> str:
    return task if isinstance(task, str) else f"worker:{task}"


def exited(
    task: str | int,
    code: int = 0,
    time: float = 1.0,
    *,
    memory: bool = False,
    requested: bool = False,
) -> TaskExited:
    how = {"status": ExitStatus(code=code, out_of_memory=memory), "requested": requested}
    return TaskExited(task=named(task), time=time, tail="the tail", **how)


def raised(task: str | int, kind: str = "ValueError", *, time: float = 2.0) -> TaskRaised:
    return TaskRaised(task=named(task), time=time, error=Error(type=kind))


def left(task: str | int, *, time: float = 2.0) -> TaskRaised:
    """It has noticed that a peer has gone, or was told so."""
    return raised(task, "UnavailableError", time=time)


def saved(task: str | int) -> TaskSaved:
    return TaskSaved(task=named(task))


def lost(
    agent: str, *, spare: bool = False, code: str = "TFRUN-301", time: float = 1.0
) -> AgentLost:
    failure = Failure(task=agent, time=time, tail="it was lost", code=code)
    return AgentLost(agent=agent, failure=failure, spare=spare)


def walk(
    *events: Event,
    tasks: Sequence[PlannedTask] = TASKS,
    recovers: bool = False,
    round: Round | None = None,
) -> tuple[Round, tuple[Action, ...]]:
    """Returns the round after the events, and the last one's actions.

    Args:
      *events: what it hears.
      tasks: of a first round, which nobody has joined yet.
      recovers: likewise.
      round: the round before the events, instead of that.
    """
    round = round or Round(number=0, tasks=tuple(tasks), recovers=recovers)
    actions: tuple[Action, ...] = ()
    for event in events:
        round, actions = step(round, event)
    return round, actions
