"""Ends a round so that it is repeated: workers that lost a peer keep their state and leave."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tfrun.control.rounds.actions import (
    GiveUpAgents,
    LeaveTasks,
    RegroupTasks,
    Result,
    SetTimer,
    StopTasks,
)
from tfrun.control.rounds.after_failure import (
    mendable,
    with_error,
    with_late_exit,
    with_silent,
    without_agent,
    worth_leaving,
)
from tfrun.control.rounds.ending import end_when_over, stop
from tfrun.control.rounds.events import (
    AgentLost,
    Regroup,
    TaskDone,
    TaskExited,
    TaskRaised,
    TaskSaved,
    TimedOut,
)
from tfrun.control.rounds.model import Round, State
from tfrun.control.rounds.preemption import chief_not_resumed
from tfrun.control.rounds.vain_wait import with_hard_end


def fail(round: Round) -> Result:
    """A failure in a round that was running: into the next round, or to the end."""
    round = with_hard_end(round)
    if not worth_leaving(round):
        return stop(round, "SIGTERM", round.timeouts.stop_grace)
    round = replace(round, state=State.LEAVING)
    if round.has_servers:  # with one of them a part of the state is gone, and nobody has a copy
        return _kill(replace(round, killed=True))
    finished = tuple(sorted(round.done & round.remaining))
    kill = (StopTasks(signal="SIGKILL", grace=0, tasks=finished),) if finished else ()
    timer = SetTimer(state=State.LEAVING, seconds=_grace(round))
    return end_when_over(round, (LeaveTasks(), *kill, timer))


def regroup(round: Round, event: Regroup) -> Result:
    """The first worker that leaves between two steps has the others leave, as after a failure."""
    if round.preempting or round.done or not mendable(round):
        return round, ()
    timer = () if event.within is None else (SetTimer(state=State.RUNNING, seconds=event.within),)
    return replace(round, regrouping=round.regrouping | event.agents), (RegroupTasks(), *timer)


def running_timed_out(round: Round, event: TimedOut) -> Result:
    """A machine has to go, and no step ends: its time does not allow to wait any longer."""
    if event.state is not round.state:
        return round, ()
    if round.preempting:
        return chief_not_resumed(round)
    return fail(round) if round.regrouping else (round, ())


def exited_while_leaving(round: Round, event: TaskExited) -> Result:
    if round.is_aside(event.task):  # however it ends
        return _go_on_leaving(
            round, replace(round, exits={**round.exits, event.task: event.status})
        )
    after = with_late_exit(round, event)
    if event.status.code == 0:
        after = replace(after, done=after.done | {event.task})
    return _go_on_leaving(round, after)


def raised_while_leaving(round: Round, event: TaskRaised) -> Result:
    if round.is_aside(event.task):
        return round, ()
    return _go_on_leaving(round, with_error(round, event))


def saved_while_leaving(round: Round, event: TaskSaved) -> Result:
    return _go_on_leaving(round, replace(round, saved=round.saved | {event.task}))


def done_while_leaving(round: Round, event: TaskDone) -> Result:
    """It would wait for a release that does not come: the next round runs its script again."""
    kill = StopTasks(signal="SIGKILL", grace=0, tasks=(event.task,))
    round, actions = _go_on_leaving(round, replace(round, done=round.done | {event.task}))
    return round, (kill, *actions) if round.state is State.LEAVING else actions


def lost_while_leaving(round: Round, event: AgentLost) -> Result:
    return _go_on_leaving(round, without_agent(round, event))


def leave_timed_out(round: Round, event: TimedOut) -> Result:
    if event.state is not round.state:
        return round, ()
    if round.killed:  # some processes outlive even SIGKILL: no round has room on their machines
        return round, (GiveUpAgents(agents=_agents_of(round, round.remaining)),)
    return _kill(replace(with_silent(round), killed=True))


def _agents_of(round: Round, tasks: Collection[str]) -> frozenset[str]:
    return frozenset(task.agent for task in round.tasks if task.name in tasks)


def _kill(round: Round) -> Result:
    kill = StopTasks(signal="SIGKILL", grace=0)
    timer = SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace)
    return end_when_over(round, (kill, timer))


def _go_on_leaving(before: Round, round: Round) -> Result:
    round = with_hard_end(round)
    if not worth_leaving(round):
        return stop(round, "SIGTERM", round.timeouts.stop_grace)
    shorter = not round.killed and _grace(round) < _grace(before)
    timer = SetTimer(state=State.LEAVING, seconds=_grace(round))
    return end_when_over(round, (timer,) if shorter else ())


def _grace(round: Round) -> float:
    """Returns how long those may take that have not left yet.

    Only a snapshot of one that is leaving shortens it: others are written all the time.
    """
    waited_for = round.remaining - round.followers - round.done
    if round.saved & round.followers or not waited_for:
        return round.timeouts.straggler_grace
    return round.timeouts.leave_grace
