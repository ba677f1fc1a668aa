"""A round's life as a state machine: pure, without clocks, sockets or processes.

A round is one fixed world: its number, its tasks and where each one runs.

    JOINING ──all agents──▶ PREPARING ──all ports──▶ RUNNING ──all scripts done──▶ RELEASING
       │                       │                       │                              │
       └───────failure, interrupt, time-out────────────┴──▶ STOPPING ──all gone──▶ ENDED

`step` takes a round and an event and returns the next round and the actions to carry out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfrun.job.exits import ExitStatus
from tfrun.job.failure import Failure, root_cause
from tfrun.job.timeouts import Timeouts


class State(enum.Enum):
    JOINING = "joining"
    PREPARING = "preparing"
    RUNNING = "running"
    RELEASING = "releasing"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class PlannedTask:
    """A task of the round. `runs` is "script", or "server" for one that serves until the end."""

    name: str
    agent: str
    runs: str = "script"


@dataclass(frozen=True, kw_only=True)
class Round:
    """All that is known of a round."""

    number: int
    tasks: tuple[PlannedTask, ...]
    timeouts: Timeouts = field(default_factory=Timeouts)
    state: State = State.JOINING
    joined: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    done: frozenset[str] = frozenset()
    exits: Mapping[str, ExitStatus] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    interrupted: str = ""

    @property
    def agents(self) -> frozenset[str]:
        return frozenset(task.agent for task in self.tasks)

    def tasks_of(self, agent: str) -> tuple[PlannedTask, ...]:
        return tuple(task for task in self.tasks if task.agent == agent)

    @property
    def is_over(self) -> bool:
        """True when no task's process can be left: each has ended, or its agent is lost."""
        return all(task.name in self.exits or task.agent in self.lost for task in self.tasks)

    @property
    def root_cause(self) -> Failure | None:
        return root_cause(self.failures)


# --- events ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AgentJoined:
    agent: str


@dataclass(frozen=True, kw_only=True)
class AgentPrepared:
    agent: str
    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class AgentLost:
    """The agent's connection broke, it went silent, or it could not prepare."""

    agent: str
    failure: Failure


@dataclass(frozen=True, kw_only=True)
class TaskDone:
    """The script has finished without error; the process waits for its release."""

    task: str


@dataclass(frozen=True, kw_only=True)
class TaskRaised:
    """The script raised; its process is about to end."""

    task: str
    time: float
    error: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskExited:
    """A process has ended; `requested`: by a signal that we sent."""

    task: str
    time: float
    status: ExitStatus
    requested: bool = False
    tail: str = ""


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    """A person or the system wants the job to end; `signal` names what came."""

    signal: str


@dataclass(frozen=True, kw_only=True)
class TimedOut:
    """The timer that was set on entering `state` has run out."""

    state: State
    failure: Failure | None = None


Event = (
    AgentJoined
    | AgentPrepared
    | AgentLost
    | TaskDone
    | TaskRaised
    | TaskExited
    | Interrupt
    | TimedOut
)


# --- actions --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrepareAgents:
    """Have each agent reserve its ports and import TensorFlow."""


@dataclass(frozen=True, kw_only=True)
class StartTasks:
    """Start every task, with the ports in `Round.ports`."""


@dataclass(frozen=True, kw_only=True)
class ReleaseTasks:
    """Let the finished processes end, and stop the servers."""


@dataclass(frozen=True, kw_only=True)
class StopTasks:
    """Send `signal` to all tasks; SIGKILL after `grace` seconds."""

    signal: str
    grace: float


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """Feed `TimedOut(state=…)` in `seconds`."""

    state: State
    seconds: float


Action = PrepareAgents | StartTasks | ReleaseTasks | StopTasks | SetTimer
Result = tuple[Round, tuple[Action, ...]]


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
    return _stop(_with_exit_failure(round, event), "SIGTERM", round.timeouts.stop_grace)


def _exited_while_releasing(round: Round, event: TaskExited) -> Result:
    # Everything that counts is done; how a process leaves now cannot fail the job.
    return _end_when_over(replace(round, exits={**round.exits, event.task: event.status}))


def _exited_while_stopping(round: Round, event: TaskExited) -> Result:
    round = replace(round, exits={**round.exits, event.task: event.status})
    # Ends by our own signals are no news; an own exit code, or a signal we did not send, is.
    own_end = event.status.code != 0 and not event.requested and not round.interrupted
    reported = any(f.task == event.task and not f.status for f in round.failures)
    if own_end or reported or event.status.out_of_memory:
        round = _with_exit_failure(round, event)
    return _end_when_over(round)


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
    round = _with_error(round, event)
    return _stop(round, "SIGTERM", round.timeouts.stop_grace)


def _raised_while_stopping(round: Round, event: TaskRaised) -> Result:
    return (round if round.interrupted else _with_error(round, event)), ()


def _with_error(round: Round, event: TaskRaised) -> Round:
    failure = Failure(task=event.task, time=event.time, error=dict(event.error))
    return replace(round, failures=(*round.failures, failure))


def _lost(round: Round, event: AgentLost) -> Result:
    round = replace(
        round, lost=round.lost | {event.agent}, failures=(*round.failures, event.failure)
    )
    return _stop(round, "SIGTERM", round.timeouts.stop_grace)


def _lost_while_stopping(round: Round, event: AgentLost) -> Result:
    return _end_when_over(replace(round, lost=round.lost | {event.agent}))


def _interrupted(round: Round, event: Interrupt) -> Result:
    round = replace(round, interrupted=event.signal)
    signal = "SIGINT" if event.signal == "SIGINT" else "SIGTERM"
    return _stop(round, signal, round.timeouts.interrupt_grace)


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
    return (replace(round, state=State.ENDED), ()) if round.is_over else (round, actions)


Transition = Callable[[Round, Any], Result]

# An event that is not in its state's row is late news and changes nothing.
TRANSITIONS: dict[State, dict[type, Transition]] = {
    State.JOINING: {
        AgentJoined: _joined,
        AgentLost: _lost,
        Interrupt: _interrupted,
        TimedOut: _join_timed_out,
    },
    State.PREPARING: {
        AgentPrepared: _prepared,
        AgentLost: _lost,
        Interrupt: _interrupted,
        TimedOut: _join_timed_out,
    },
    State.RUNNING: {
        TaskDone: _done,
        TaskRaised: _raised,
        TaskExited: _exited_while_running,
        AgentLost: _lost,
        Interrupt: _interrupted,
    },
    State.RELEASING: {
        TaskExited: _exited_while_releasing,
        AgentLost: _lost_while_stopping,
        Interrupt: _interrupted_again,
        TimedOut: _exit_timed_out,
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
