"""A round's life as a state machine: pure, without clocks, sockets or processes.

A round is one fixed world: its number, its tasks and where each one runs.

    JOINING ──all agents──▶ PREPARING ──all ports──▶ RUNNING ──all scripts done──▶ RELEASING
       │                       │                      │   │                           │
       └───────failure, interrupt, time-out───────────┘   └─a failure that the        │
                               │                            next round may mend       │
                               ▼                                  ▼                   │
                            STOPPING ◀──the script's own───── LEAVING                 │
                               └───────────all gone──────────────┴────▶ ENDED ◀───────┘

In LEAVING no signal is sent at first: the workers that are left notice by themselves that a peer
has gone, or are told so, write a snapshot and leave. A round that ends there, or that loses an
agent before it has started, is `recoverable`: the job may open the next one.

`step` takes a round and an event and returns the next round and the actions to carry out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfrun.control.round_terms import (
    Action,
    AgentJoined,
    AgentLost,
    AgentPrepared,
    Event,
    Interrupt,
    JobSaved,
    LeaveTasks,
    PrepareAgents,
    ReleaseTasks,
    Round,
    SaveTasks,
    SetTimer,
    StartTasks,
    State,
    StopTasks,
    TaskDone,
    TaskExited,
    TaskRaised,
    TaskSaved,
    TimedOut,
)
from tfrun.job.exits import ExitStatus
from tfrun.job.failure import Failure
from tfrun.job.restarts import Cause, cause_of

Result = tuple[Round, tuple[Action, ...]]


def begin(round: Round, joined: frozenset[str]) -> Result:
    """Returns a later round's beginning: the agents are there already.

    Args:
      round: the round, in JOINING.
      joined: the agents that are there, all of the round's among them.
    """
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
    return _release_when_all_done(replace(round, done=round.done | {event.task}))


def _release_when_all_done(round: Round) -> Result:
    scripts = {task.name for task in round.tasks if task.runs == "script"}
    if round.done >= scripts:
        round = replace(round, state=State.RELEASING)
        timer = SetTimer(state=State.RELEASING, seconds=round.timeouts.stop_grace * 5)
        return _end_when_over(round, (ReleaseTasks(), timer))
    return round, ()


def _exited_while_running(round: Round, event: TaskExited) -> Result:
    round = replace(round, exits={**round.exits, event.task: event.status})
    is_server = any(task.name == event.task and task.runs == "server" for task in round.tasks)
    if event.status.code == 0 and not is_server:
        return _release_when_all_done(replace(round, done=round.done | {event.task}))
    return _fail(_with_exit_failure(round, event))


def _exited_while_releasing(round: Round, event: TaskExited) -> Result:
    # Everything that counts is done; how a process leaves now cannot fail the job.
    return _end_when_over(replace(round, exits={**round.exits, event.task: event.status}))


def _exited_while_stopping(round: Round, event: TaskExited) -> Result:
    return _end_when_over(_with_late_exit(round, event))


def _exited_while_leaving(round: Round, event: TaskExited) -> Result:
    after = _with_late_exit(round, event)
    if event.status.code == 0:
        after = replace(after, done=after.done | {event.task})
    return _go_on_leaving(round, after)


def _with_late_exit(round: Round, event: TaskExited) -> Round:
    round = replace(round, exits={**round.exits, event.task: event.status})
    # Ends by our own signals are no news; an own exit code, or a signal we did not send, is.
    own_end = event.status.code != 0 and not event.requested and not round.interrupted
    reported = any(f.task == event.task and f.error and not f.status for f in round.failures)
    if own_end or reported or event.status.out_of_memory:
        return _with_exit_failure(round, event)
    return round


def _with_exit_failure(round: Round, event: TaskExited) -> Round:
    """Records the exit, joined with the exception that the same task reported before."""
    code = "TFRUN-403" if event.status.out_of_memory else "TFRUN-401"
    for index, failure in enumerate(round.failures):
        if failure.task == event.task:
            # Killed by us after its report: the exit code that an exception leads to is 1.
            status = event.status if event.status.code > 0 else ExitStatus(code=1)
            joined = replace(failure, status=status, tail=event.tail, code=code)
            failures = (*round.failures[:index], joined, *round.failures[index + 1 :])
            return replace(round, failures=failures)
    failure = Failure(
        task=event.task, time=event.time, status=event.status, tail=event.tail, code=code
    )
    return replace(round, failures=(*round.failures, failure))


def _raised(round: Round, event: TaskRaised) -> Result:
    return _fail(_with_error(round, event))


def _raised_while_stopping(round: Round, event: TaskRaised) -> Result:
    return (round if round.interrupted else _with_error(round, event)), ()


def _raised_while_leaving(round: Round, event: TaskRaised) -> Result:
    return _go_on_leaving(round, _with_error(round, event))


def _saved(round: Round, event: TaskSaved) -> Result:
    return replace(round, saved=round.saved | {event.task}), ()


def _saved_while_leaving(round: Round, event: TaskSaved) -> Result:
    return _go_on_leaving(round, replace(round, saved=round.saved | {event.task}))


def _done_while_leaving(round: Round, event: TaskDone) -> Result:
    """It would wait for a release that does not come: the next round runs its script again."""
    kill = StopTasks(signal="SIGKILL", grace=0, tasks=(event.task,))
    round, actions = _go_on_leaving(round, replace(round, done=round.done | {event.task}))
    return round, (kill, *actions) if round.state is State.LEAVING else actions


def _with_error(round: Round, event: TaskRaised) -> Round:
    failure = Failure(task=event.task, time=event.time, error=dict(event.error))
    return replace(round, failures=(*round.failures, failure))


def _lost(round: Round, event: AgentLost) -> Result:
    return _fail(_without_agent(round, event))


def _lost_while_preparing(round: Round, event: AgentLost) -> Result:
    """A first round that has never run fails at once; a later one is as good as running."""
    round = _without_agent(round, event)
    if round.number and _mendable(round):
        return replace(round, state=State.ENDED, recoverable=True), ()
    return _fail(replace(round, recovers=False))


def _lost_while_leaving(round: Round, event: AgentLost) -> Result:
    return _go_on_leaving(round, _without_agent(round, event))


def _lost_while_stopping(round: Round, event: AgentLost) -> Result:
    """Its peers' errors, which follow from its end, may well have come first."""
    lost = replace(round, lost=round.lost | {event.agent})
    return _end_when_over(lost if round.interrupted else _without_agent(round, event))


def _lost_while_releasing(round: Round, event: AgentLost) -> Result:
    return _end_when_over(replace(round, lost=round.lost | {event.agent}))


def _without_agent(round: Round, event: AgentLost) -> Round:
    there = {task.name for task in round.tasks_of(event.agent)}
    # That its workers do not answer any more is no news of its own.
    others = [f for f in round.failures if not (f.silent and f.task in there)]
    return replace(
        round,
        lost=round.lost | {event.agent},
        failures=(*others, event.failure),
        recovers=round.recovers and event.spare,
    )


def _fail(round: Round) -> Result:
    """A failure in a round that was running: into the next round, or to the end."""
    if not _mendable(round):
        return _stop(round, "SIGTERM", round.timeouts.stop_grace)
    round = replace(round, state=State.LEAVING)
    finished = tuple(sorted(round.done & round.remaining))
    kill = (StopTasks(signal="SIGKILL", grace=0, tasks=finished),) if finished else ()
    timer = SetTimer(state=State.LEAVING, seconds=_grace(round))
    return _end_when_over(round, (LeaveTasks(), *kill, timer))


def _mendable(round: Round) -> bool:
    causes = {cause_of(failure) for failure in round.failures}
    return round.recovers and not round.preempting and causes <= {Cause.INFRASTRUCTURE}


def _go_on_leaving(before: Round, round: Round) -> Result:
    if not _mendable(round):
        return _stop(round, "SIGTERM", round.timeouts.stop_grace)
    shorter = not round.killed and _grace(round) < _grace(before)
    timer = SetTimer(state=State.LEAVING, seconds=_grace(round))
    return _end_when_over(round, (timer,) if shorter else ())


def _grace(round: Round) -> float:
    """Returns how long those may take that have not left yet.

    Only a snapshot of one that is leaving shortens it: others are written all the time.
    """
    waited_for = round.remaining - round.followers - round.done
    if round.saved & round.followers or not waited_for:
        return round.timeouts.straggler_grace
    return round.timeouts.leave_grace


def _leave_timed_out(round: Round, event: TimedOut) -> Result:
    if event.state is not round.state:
        return round, ()
    if round.killed:  # some processes outlive even SIGKILL: the next round has no room
        return replace(round, state=State.ENDED), ()
    kill = StopTasks(signal="SIGKILL", grace=0)
    timer = SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace)
    return replace(_with_silent(round), killed=True), (kill, timer)


def _with_silent(round: Round) -> Round:
    """Names the cause where all have only lost sight of another: those that say nothing."""
    if any(not failure.follows_from_a_peer for failure in round.failures):
        return round
    since = min(failure.time for failure in round.failures)
    silent = sorted(round.remaining - round.followers - round.done)
    failures = (
        Failure(
            task=task,
            time=since,
            tail=f"{task.replace(':', ' ')} stopped answering and was killed",
            silent=True,
        )
        for task in silent
    )
    return replace(round, failures=(*round.failures, *failures))


def _interrupted(round: Round, event: Interrupt) -> Result:
    round = replace(round, interrupted=event.signal)
    signal = "SIGINT" if event.signal == "SIGINT" else "SIGTERM"
    return _stop(round, signal, round.timeouts.interrupt_grace)


def _interrupted_while_running(round: Round, event: Interrupt) -> Result:
    """SIGTERM takes the machine away: the state is saved first. Ctrl-C, or a second one, ends."""
    if event.signal != "SIGTERM" or not round.saves or round.preempting:
        return _interrupted(round, event)
    timer = SetTimer(state=State.RUNNING, seconds=round.timeouts.preempt_grace)
    return replace(round, preempting=True), (SaveTasks(), timer)


def _job_saved(round: Round, event: JobSaved) -> Result:
    if not round.preempting:
        return round, ()
    return _stop(replace(round, preempted=True, interrupted="SIGTERM"), "SIGKILL", 0)


def _saving_timed_out(round: Round, event: TimedOut) -> Result:
    return _interrupted(round, Interrupt(signal="SIGTERM")) if round.preempting else (round, ())


def _interrupted_while_leaving(round: Round, event: Interrupt) -> Result:
    """The failures were about to be mended; what ends the job is the person."""
    return _interrupted(replace(round, failures=()), event)


def _interrupted_again(round: Round, event: Interrupt) -> Result:
    return replace(round, interrupted=round.interrupted or event.signal), (
        StopTasks(signal="SIGKILL", grace=0),
    )


def _join_timed_out(round: Round, event: TimedOut) -> Result:
    if event.state is not round.state:
        return round, ()
    assert event.failure is not None
    return _stop(
        replace(round, failures=(*round.failures, event.failure)),
        "SIGTERM",
        round.timeouts.stop_grace,
    )


def _exit_timed_out(round: Round, event: TimedOut) -> Result:
    """Processes that outlive even SIGKILL (in the kernel) do not hold the job's end up."""
    return (replace(round, state=State.ENDED), ()) if event.state is round.state else (round, ())


def _stop(round: Round, signal: str, grace: float) -> Result:
    not_started = round.state in (State.JOINING, State.PREPARING)
    round = replace(round, state=State.ENDED if not_started else State.STOPPING)
    timer = SetTimer(state=State.STOPPING, seconds=grace + round.timeouts.agent_exit)
    return _end_when_over(round, (StopTasks(signal=signal, grace=grace), timer))


def _end_when_over(round: Round, actions: tuple[Action, ...] = ()) -> Result:
    if not round.is_over:
        return round, actions
    return replace(round, state=State.ENDED, recoverable=round.state is State.LEAVING), ()


Transition = Callable[[Round, Any], Result]

# An event that is not in its state's row is late news and changes nothing.
TRANSITIONS: dict[State, dict[type, Transition]] = {
    State.JOINING: {
        AgentJoined: _joined,
        AgentLost: _lost_while_preparing,
        Interrupt: _interrupted,
        TimedOut: _join_timed_out,
    },
    State.PREPARING: {
        AgentPrepared: _prepared,
        AgentLost: _lost_while_preparing,
        Interrupt: _interrupted,
        TimedOut: _join_timed_out,
    },
    State.RUNNING: {
        TaskDone: _done,
        TaskSaved: _saved,
        TaskRaised: _raised,
        TaskExited: _exited_while_running,
        JobSaved: _job_saved,
        AgentLost: _lost,
        Interrupt: _interrupted_while_running,
        TimedOut: _saving_timed_out,
    },
    State.RELEASING: {
        TaskExited: _exited_while_releasing,
        AgentLost: _lost_while_releasing,
        Interrupt: _interrupted_again,
        TimedOut: _exit_timed_out,
    },
    State.LEAVING: {
        TaskDone: _done_while_leaving,
        TaskSaved: _saved_while_leaving,
        TaskRaised: _raised_while_leaving,
        TaskExited: _exited_while_leaving,
        AgentLost: _lost_while_leaving,
        Interrupt: _interrupted_while_leaving,
        TimedOut: _leave_timed_out,
    },
    State.STOPPING: {
        TaskRaised: _raised_while_stopping,
        TaskExited: _exited_while_stopping,
        AgentLost: _lost_while_stopping,
        Interrupt: _interrupted_again,
        TimedOut: _exit_timed_out,
    },
    State.ENDED: {},
}


def step(round: Round, event: Event) -> Result:
    """Returns the round after `event` and what has to be done about it."""
    transition = TRANSITIONS[round.state].get(type(event))
    return transition(round, event) if transition else (round, ())
