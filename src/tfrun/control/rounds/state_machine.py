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
agent before it has started, is `recoverable`: the job may open the next one. Some may *stay*: they
leave the round and not their processes. A round that ends `in_place` is followed by one of these,
which begins in RUNNING. `ChangeMachines` asks the workers of a round that runs to leave in the same
way. In SAVING no process is left, and a machine brings to the disk what an earlier round has kept
in its memory.

`step` takes a round and an event and returns the next round and the actions to carry out. The
transitions that follow a failure are in `after_failure` and `staying`, those of an interrupt in
`stopping`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfrun.control.protocol.messages import MemorySaved, Release, WorkerExited
from tfrun.control.rounds import (
    after_failure,
    mismatched_collectives,
    preempted_job,
    staying,
    stopping,
)
from tfrun.control.rounds.model import (
    AgentJoined,
    AgentLost,
    AgentPrepared,
    ChangeMachines,
    EndsAwaited,
    Event,
    GraceOver,
    Interrupt,
    Preempt,
    PrepareAgents,
    Reported,
    Result,
    Round,
    SetTimer,
    StartTasks,
    State,
    StayDecided,
    TimedOut,
)
from tfrun.control.rounds.stopping import end_when_over, save_memory
from tfrun.job import reports


def begin(round: Round, joined: frozenset[str]) -> Result:
    """Returns a later round's beginning: the agents are there already.

    Args:
      round: the round, in JOINING.
      joined: the agents that are there, all of the round's among them unless it only saves.
    """
    if round.preempting:
        return save_memory(round) if round.resumes else preempted_job.nothing_to_save(round)
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


def _done(round: Round, event: Reported[reports.Done]) -> Result:
    return _one_is_done(round, event.task, event.report.collectives)


def _one_is_done(round: Round, task: str, collectives: int | None) -> Result:
    round = replace(round, done=round.done | {task})
    scripts = {task.name for task in round.tasks if task.runs == "script" and not task.is_aside}
    if not round.done >= scripts:
        return mismatched_collectives.with_end(round, task, collectives)
    round = replace(round, state=State.RELEASING)
    aside = any(task.is_aside for task in round.tasks)  # it has the last state before it
    seconds = round.timeouts.pause_timeout if aside else round.timeouts.stop_grace * 5
    timer = SetTimer(state=State.RELEASING, seconds=seconds)
    return end_when_over(round, (Release(round=round.number), timer))


def _exited_while_running(round: Round, event: WorkerExited) -> Result:
    if result := after_failure.replaced(round, event):
        return result
    round = after_failure.with_exit(round, event)
    scripts = {task.name for task in round.tasks if task.runs == "script"}
    servers = {task.name for task in round.tasks} - scripts
    is_server = bool(scripts) and event.task in servers  # one alone ends when the chief has
    if event.status.code == 0 and not is_server:
        return _one_is_done(round, event.task, round.ended.get(event.task))
    return after_failure.fail(after_failure.with_exit_failure(round, event))


def _exited_while_releasing(round: Round, event: WorkerExited) -> Result:
    # Everything that counts is done; how a process leaves now cannot fail the job.
    return end_when_over(after_failure.with_exit(round, event))


def _exited_while_stopping(round: Round, event: WorkerExited) -> Result:
    return end_when_over(after_failure.with_late_exit(round, event))


def _raised(round: Round, event: Reported[reports.Error]) -> Result:
    if round.is_aside(event.task):
        return round, ()  # its end follows
    return after_failure.fail(after_failure.with_error(round, event))


def _raised_while_stopping(round: Round, event: Reported[reports.Error]) -> Result:
    return (round if round.interrupted else after_failure.with_error(round, event)), ()


def _saved(round: Round, event: Reported[reports.SnapshotTaken]) -> Result:
    return replace(round, saved=round.saved | {event.task}), ()


def _lost(round: Round, event: AgentLost) -> Result:
    return after_failure.fail(after_failure.without_agent(round, event))


def _lost_while_joining(round: Round, event: AgentLost) -> Result:
    """Nothing was started: one that can come back is simply not there yet."""
    if event.spare:
        return replace(round, joined=round.joined - {event.agent}), ()
    round = after_failure.without_agent(round, event)
    return save_memory(round) if round.resumes else _end_unstarted(round)


def _lost_while_preparing(round: Round, event: AgentLost) -> Result:
    """A first round that has never run fails at once; a later one is as good as running."""
    round = after_failure.without_agent(round, event)
    if round.number and after_failure.mendable(round):
        return replace(round, state=State.ENDED, recoverable=True), ()
    return _end_unstarted(round)


def _end_unstarted(round: Round) -> Result:
    return after_failure.fail(replace(round, recovers=False, keeps=False))


def _lost_while_stopping(round: Round, event: AgentLost) -> Result:
    """Its peers' errors, which follow from its end, may well have come first."""
    lost = replace(round, lost=round.lost | {event.agent})
    return end_when_over(lost if round.interrupted else after_failure.without_agent(round, event))


def _lost_while_releasing(round: Round, event: AgentLost) -> Result:
    return end_when_over(replace(round, lost=round.lost | {event.agent}))


def _join_timed_out(round: Round, event: TimedOut) -> Result:
    assert event.failure is not None
    round = replace(round, failures=(*round.failures, event.failure))
    if round.resumes:
        return save_memory(round)
    return stopping.stop(round, "SIGTERM", round.timeouts.stop_grace)


Transition = Callable[[Round, Any], Result]

# An event that is not in its state's row is late news and changes nothing.
TRANSITIONS: dict[State, dict[type, Transition]] = {
    State.JOINING: {
        AgentJoined: _joined,
        AgentLost: _lost_while_joining,
        Interrupt: stopping.interrupted,
        Preempt: preempted_job.preempted_before_the_start,
        TimedOut: _join_timed_out,
    },
    State.PREPARING: {
        AgentPrepared: _prepared,
        AgentLost: _lost_while_preparing,
        Interrupt: stopping.interrupted,
        Preempt: preempted_job.preempted_before_the_start,
        TimedOut: _join_timed_out,
    },
    State.RUNNING: {
        reports.Done: _done,
        EndsAwaited: mismatched_collectives.tell,
        reports.WaitsInCollective: mismatched_collectives.with_stand,
        reports.SnapshotTaken: _saved,
        reports.Error: _raised,
        reports.OneReplicaEach: after_failure.one_replica_each,
        WorkerExited: _exited_while_running,
        reports.Resumed: preempted_job.resumed,
        reports.FirstStep: preempted_job.resumed,
        reports.Applied: after_failure.steps_applied,
        reports.StateSaved: preempted_job.job_saved,
        reports.Stayed: staying.stayed_while_running,
        ChangeMachines: after_failure.regroup,
        reports.StateNotSaved: preempted_job.job_not_saved,
        AgentLost: _lost,
        Interrupt: stopping.interrupted,
        Preempt: preempted_job.preempted_while_running,
        GraceOver: preempted_job.grace_over,
        TimedOut: after_failure.running_timed_out,
    },
    State.RELEASING: {
        WorkerExited: _exited_while_releasing,
        AgentLost: _lost_while_releasing,
        Interrupt: stopping.interrupted_again,
        TimedOut: stopping.exit_timed_out,
    },
    State.LEAVING: {
        reports.Done: after_failure.done_while_leaving,
        reports.SnapshotTaken: after_failure.saved_while_leaving,
        reports.Error: after_failure.raised_while_leaving,
        reports.Stayed: staying.stayed_while_leaving,
        reports.Comes: staying.comes_while_leaving,
        StayDecided: staying.decided,
        WorkerExited: after_failure.exited_while_leaving,
        AgentLost: after_failure.lost_while_leaving,
        reports.StateSaved: preempted_job.job_saved,
        reports.StateNotSaved: preempted_job.job_not_saved,
        Interrupt: stopping.interrupted_while_leaving,
        Preempt: preempted_job.preempted_while_running,
        GraceOver: preempted_job.grace_over,
        TimedOut: after_failure.leave_timed_out,
    },
    State.STOPPING: {
        reports.Error: _raised_while_stopping,
        WorkerExited: _exited_while_stopping,
        AgentLost: _lost_while_stopping,
        Interrupt: stopping.interrupted_again,
        TimedOut: stopping.exit_timed_out,
    },
    State.SAVING: {
        MemorySaved: preempted_job.memory_saved,
        AgentLost: preempted_job.lost_while_saving,
        Interrupt: preempted_job.interrupted_while_saving,
        GraceOver: preempted_job.memory_timed_out,
        TimedOut: preempted_job.memory_timed_out,
    },
    State.ENDED: {},
}


def step(round: Round, event: Event) -> Result:
    """Returns the round after `event` and what has to be done about it."""
    kind = type(event.report if isinstance(event, Reported) else event)
    if isinstance(event, TimedOut) and event.state is not round.state:
        return round, ()  # a timer of an earlier state
    transition = TRANSITIONS[round.state].get(kind)
    return transition(round, event) if transition else (round, ())
