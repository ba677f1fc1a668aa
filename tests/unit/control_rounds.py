"""Makes rounds and events for tests of the round's transitions."""

from __future__ import annotations

from collections.abc import Sequence

from tfrun.control.protocol.messages import MemorySaved, StopRound, WorkerExited
from tfrun.control.rounds.model import (
    Action,
    AgentJoined,
    AgentLost,
    AgentPrepared,
    Event,
    PlannedTask,
    Reported,
    Round,
)
from tfrun.control.rounds.state_machine import step
from tfrun.job import reports
from tfrun.job.first_failure import Failure

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
) -> WorkerExited:
    how = {"code": code, "out_of_memory": memory, "requested": requested, "tail": "the tail"}
    return WorkerExited(round=0, task=named(task), time=time, **how)


def reported(task: str | int, report: reports.Report, time: float = 2.0) -> Reported:
    return Reported(task=named(task), time=time, report=report)


def raised(task: str | int, kind: str = "ValueError", *, time: float = 2.0) -> Reported:
    return reported(task, reports.Error(type=kind), time)


def left(task: str | int, *, time: float = 2.0) -> Reported:
    """A task reports the error that it gets when another worker is gone."""
    return raised(task, "UnavailableError", time=time)


def done(task: str | int, collectives: int | None = 7) -> Reported:
    return reported(task, reports.Done(collectives=collectives))


def saved(task: str | int) -> Reported:
    return reported(task, reports.SnapshotTaken(key=[0, 0, 1], step=1))


def stayed(task: str | int, port: int = 7000) -> Reported:
    report = reports.Stayed(key=[0, 0, 1], step=1)
    return Reported(task=named(task), time=2.0, report=report, port=port)


def comes(task: str | int) -> Reported:
    return reported(task, reports.Comes())


def resumed(task: str | int = 0) -> Reported:
    return reported(task, reports.Resumed(key=[0, 0, 1], step=1))


def applied(step: int, task: str = "chief:0") -> Reported:
    return reported(task, reports.Applied(step=step))


def job_saved(step: int | None = None) -> Reported:
    return reported(0, reports.StateSaved(step=step))


def job_not_saved(reason: str, *, for_good: bool = False) -> Reported:
    return reported(0, reports.StateNotSaved(reason=reason, for_good=for_good))


def memory_saved(step: int, problem: str = "") -> MemorySaved:
    return MemorySaved(round=0, step=step, problem=problem)


def kill(*tasks: str, number: int = 0) -> StopRound:
    return StopRound(round=number, signal="SIGKILL", grace=0, tasks=list(tasks))


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
    """Returns the round after the events, and the actions that the last event caused.

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
