"""The state machine of a round: pure, without clocks, sockets or processes.

A round is one fixed world: its number, its tasks and where each one runs.

    JOINING ──all agents──▶ PREPARING ──all ports──▶ RUNNING ──all scripts done──▶ RELEASING
       │                       │                      │   │                           │
       └───────failure, interrupt, time-out───────────┘   └─a failure that the        │
                               │                            next round may mend       │
                               ▼                                  ▼                   │
                            STOPPING ◀──the script's own───── LEAVING                 │
                               ├───────────all gone──────────────┴────▶ ENDED ◀───────┘
                               └─state in memory only─▶ SAVING ─saved or not─▲

In LEAVING no signal is sent at first: the workers that are left notice by themselves that a peer
has gone, or are told so, write a snapshot and leave. A round that ends there, or that loses an
agent before it has started, is `recoverable`: the job may open the next one. `Regroup` asks the
workers of a round that runs to leave in the same way, because machines come or go. In SAVING no
process is left, and a machine brings to the disk what an earlier round has kept in its memory.

`step` takes a round and an event and returns the next round and the actions to carry out. The
transitions of failing are in `round_leaving`, those of an interrupt in `round_interrupts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfrun.control.rounds.actions import PrepareAgents, ReleaseTasks, Result, SetTimer, StartTasks
from tfrun.control.rounds.after_failure import (
    mendable,
    with_error,
    with_exit_failure,
    with_late_exit,
    without_agent,
)
from tfrun.control.rounds.ending import end_when_over, exit_timed_out, save_memory, stop
from tfrun.control.rounds.events import (
    AgentJoined,
    AgentLost,
    AgentPrepared,
    ChiefResumed,
    EndsAwaited,
    Event,
    GraceOver,
    Interrupt,
    JobNotSaved,
    JobSaved,
    Preempt,
    Regroup,
    StepsApplied,
    TaskDone,
    TaskExited,
    TaskRaised,
    TaskSaved,
    TimedOut,
)
from tfrun.control.rounds.interrupt import (
    interrupted,
    interrupted_again,
    interrupted_while_leaving,
)
from tfrun.control.rounds.leaving import (
    done_while_leaving,
    exited_while_leaving,
    fail,
    leave_timed_out,
    lost_while_leaving,
    raised_while_leaving,
    regroup,
    running_timed_out,
    saved_while_leaving,
)
from tfrun.control.rounds.model import Round, Stands, State
from tfrun.control.rounds.preemption import (
    chief_resumed,
    grace_over,
    interrupted_while_saving,
    job_not_saved,
    job_saved,
    lost_while_saving,
    memory_not_saved,
    memory_saved,
    memory_timed_out,
    nothing_to_save,
    preempted_before_the_start,
    preempted_while_running,
)
from tfrun.control.rounds.replaceable_tasks import replaced, steps_applied
from tfrun.control.rounds.vain_wait import tell, with_end, with_stand


def begin(round: Round, joined: frozenset[str]) -> Result:
    """Returns a later round's beginning: the agents are there already.

    Args:
      round: the round, in JOINING.
      joined: the agents that are there, all of the round's among them unless it only saves.
    """
    if round.preempting:
        return save_memory(round) if round.resumes else nothing_to_save(round)
    assert joined >= round.agents, (joined, round.agents)
    return replace(round, state=State.PREPARING, joined=joined), (PrepareAgents(),)


# --- transitions ----------------------------------------------------------------------------


def _joined(round: Round, event: AgentJoined) -> Result:
    round = replace(round, joined=round.joined | {event.agent})
    if round.joined >= round.agents:
        return replace(round, state=State.PREPARING), (PrepareAgents(),)
    return round, ()


def _prepared(round: Round, event: AgentPrepared) -> Result:
    round = replace(round, ports={**round.ports, event.agent: event.ports})
    if set(round.ports) >= round.agents:
        return replace(round, state=State.RUNNING), (StartTasks(),)
    return round, ()


def _done(round: Round, event: TaskDone) -> Result:
    return _one_is_done(round, event.task, event.collectives)


def _one_is_done(round: Round, task: str, collectives: int | None) -> Result:
    round, actions = _release_when_all_done(replace(round, done=round.done | {task}))
    if round.state is State.RUNNING:
        return with_end(round, task, collectives)
    return round, actions


def _release_when_all_done(round: Round) -> Result:
    scripts = {task.name for task in round.tasks if task.runs == "script" and not task.is_aside}
    if round.done >= scripts:
        round = replace(round, state=State.RELEASING)
        aside = any(task.is_aside for task in round.tasks)  # it has the last state before it
        seconds = round.timeouts.pause_timeout if aside else round.timeouts.stop_grace * 5
        timer = SetTimer(state=State.RELEASING, seconds=seconds)
        return end_when_over(round, (ReleaseTasks(), timer))
    return round, ()


def _exited_while_running(round: Round, event: TaskExited) -> Result:
    if (result := replaced(round, event)) is not None:
        return result
    round = replace(round, exits={**round.exits, event.task: event.status})
    scripts = {task.name for task in round.tasks if task.runs == "script"}
    servers = {task.name for task in round.tasks} - scripts
    is_server = bool(scripts) and event.task in servers  # one alone ends when the chief has
    if event.status.code == 0 and not is_server:
        return _one_is_done(round, event.task, round.ended.get(event.task))
    return fail(with_exit_failure(round, event))


def _exited_while_releasing(round: Round, event: TaskExited) -> Result:
    # Everything that counts is done; how a process leaves now cannot fail the job.
    return end_when_over(replace(round, exits={**round.exits, event.task: event.status}))


def _exited_while_stopping(round: Round, event: TaskExited) -> Result:
    return end_when_over(with_late_exit(round, event))


def _raised(round: Round, event: TaskRaised) -> Result:
    if round.is_aside(event.task):
        return round, ()  # its end follows
    return fail(with_error(round, event))


def _raised_while_stopping(round: Round, event: TaskRaised) -> Result:
    return (round if round.interrupted else with_error(round, event)), ()


def _saved(round: Round, event: TaskSaved) -> Result:
    return replace(round, saved=round.saved | {event.task}), ()


def _lost(round: Round, event: AgentLost) -> Result:
    return fail(without_agent(round, event))


def _lost_while_joining(round: Round, event: AgentLost) -> Result:
    """Nothing was started: one that can come back is simply not there yet."""
    if event.spare:
        return replace(round, joined=round.joined - {event.agent}), ()
    round = without_agent(round, event)
    return save_memory(round) if round.resumes else _end_unstarted(round)


def _lost_while_preparing(round: Round, event: AgentLost) -> Result:
    """A first round that has never run fails at once; a later one is as good as running."""
    round = without_agent(round, event)
    if round.number and mendable(round):
        return replace(round, state=State.ENDED, recoverable=True), ()
    return _end_unstarted(round)


def _end_unstarted(round: Round) -> Result:
    return fail(replace(round, recovers=False, keeps=False))


def _lost_while_stopping(round: Round, event: AgentLost) -> Result:
    """Its peers' errors, which follow from its end, may well have come first."""
    lost = replace(round, lost=round.lost | {event.agent})
    return end_when_over(lost if round.interrupted else without_agent(round, event))


def _lost_while_releasing(round: Round, event: AgentLost) -> Result:
    return end_when_over(replace(round, lost=round.lost | {event.agent}))


def _join_timed_out(round: Round, event: TimedOut) -> Result:
    if event.state is not round.state:
        return round, ()
    assert event.failure is not None
    round = replace(round, failures=(*round.failures, event.failure))
    if round.resumes:
        return save_memory(round)
    return stop(round, "SIGTERM", round.timeouts.stop_grace)


Transition = Callable[[Round, Any], Result]

# An event that is not in its state's row is late news and changes nothing.
TRANSITIONS: dict[State, dict[type, Transition]] = {
    State.JOINING: {
        AgentJoined: _joined,
        AgentLost: _lost_while_joining,
        Interrupt: interrupted,
        Preempt: preempted_before_the_start,
        TimedOut: _join_timed_out,
    },
    State.PREPARING: {
        AgentPrepared: _prepared,
        AgentLost: _lost_while_preparing,
        Interrupt: interrupted,
        Preempt: preempted_before_the_start,
        TimedOut: _join_timed_out,
    },
    State.RUNNING: {
        TaskDone: _done,
        EndsAwaited: tell,
        Stands: with_stand,
        TaskSaved: _saved,
        TaskRaised: _raised,
        TaskExited: _exited_while_running,
        ChiefResumed: chief_resumed,
        StepsApplied: steps_applied,
        JobSaved: job_saved,
        Regroup: regroup,
        JobNotSaved: job_not_saved,
        AgentLost: _lost,
        Interrupt: interrupted,
        Preempt: preempted_while_running,
        GraceOver: grace_over,
        TimedOut: running_timed_out,
    },
    State.RELEASING: {
        TaskExited: _exited_while_releasing,
        AgentLost: _lost_while_releasing,
        Interrupt: interrupted_again,
        TimedOut: exit_timed_out,
    },
    State.LEAVING: {
        TaskDone: done_while_leaving,
        TaskSaved: saved_while_leaving,
        TaskRaised: raised_while_leaving,
        TaskExited: exited_while_leaving,
        AgentLost: lost_while_leaving,
        JobSaved: job_saved,
        JobNotSaved: job_not_saved,
        Interrupt: interrupted_while_leaving,
        Preempt: preempted_while_running,
        GraceOver: grace_over,
        TimedOut: leave_timed_out,
    },
    State.STOPPING: {
        TaskRaised: _raised_while_stopping,
        TaskExited: _exited_while_stopping,
        AgentLost: _lost_while_stopping,
        Interrupt: interrupted_again,
        TimedOut: exit_timed_out,
    },
    State.SAVING: {
        JobSaved: memory_saved,
        JobNotSaved: memory_not_saved,
        AgentLost: lost_while_saving,
        Interrupt: interrupted_while_saving,
        GraceOver: memory_timed_out,
        TimedOut: memory_timed_out,
    },
    State.ENDED: {},
}


def step(round: Round, event: Event) -> Result:
    """Returns the round after `event` and what has to be done about it."""
    transition = TRANSITIONS[round.state].get(type(event))
    return transition(round, event) if transition else (round, ())
