"""A round of a job: its states, its tasks, what it hears of, what it asks for, what is known of it.

It hears of events, and of some of the agents' messages as they are: `WorkerExited`, `MemorySaved`.
It asks for actions, which the round runner carries out. A message is one to all agents.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from tfrun.control.protocol.messages import MemorySaved, WorkerExited
from tfrun.control.protocol.wire import Message
from tfrun.job import reports
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure, root_cause
from tfrun.job.restart_policy import Cause, cause_of
from tfrun.job.timeouts import Timeouts


class State(enum.Enum):
    JOINING = "joining"
    PREPARING = "preparing"
    RUNNING = "running"
    RELEASING = "releasing"
    LEAVING = "leaving"
    STOPPING = "stopping"
    SAVING = "saving"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class PlannedTask:
    """A task of the round.

    `runs` is "script", or "server" for one that serves until the end. `replaceable`: another
    process takes its place, and nothing is lost. `is_aside`: the job's end does not depend on it.
    """

    name: str
    agent: str
    runs: str = "script"
    replaceable: bool = False
    is_aside: bool = False


@dataclass(frozen=True, kw_only=True)
class Round:
    """All that is known of a round.

    Attributes:
      ended: the tasks whose scripts have come to their end, each with `reports.Done.collectives`.
      stands: in which collective each has said to wait, the last time.
      awaits_ends: an `EndsAwaited` is on its way.
      recovers: a failure that is not the script's own shall lead to the next round.
      keeps: its workers keep their state for it, also where no round can follow.
      saved: the tasks that have reported a snapshot.
      stayed: the tasks that are out of the round, and wait for the next one in their processes;
        each with the port that is reserved for it.
      in_place: it has ended, and the next round is of the processes that wait.
      afresh: no round follows in place: those that have stayed were told to leave as well.
      killed: those that did not leave by themselves have been sent SIGKILL.
      recoverable: it has ended, and the next round may go on.
      regrouping: the machines, coming or going, for which the workers were asked to leave.
      one_each: why its script cannot have several replicas on a worker; "" as far as is known.
      resumes: its scripts go on from a state in the machines' memory.
      resumed: the chief has restored it.
      preempting: the machines are being preempted; the training's state is being saved.
      preempted: it has been saved, or there was nothing to save.
      in_memory: what is to be saved is in the machines' memory, and in no process.
      saved_step: the step that has been saved for that.
      unsaved: why it has not been saved so far.
      replacements: how often in a row a replaceable task may end without progress of the job.
      replaced: how often each has ended since the last progress, and when it did last.
      applied: the step that the chief has reported, of a training whose state is on servers.
    """

    number: int
    tasks: tuple[PlannedTask, ...]
    timeouts: Timeouts = field(default_factory=Timeouts)
    state: State = State.JOINING
    joined: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    done: frozenset[str] = frozenset()
    ended: Mapping[str, int | None] = field(default_factory=dict)
    stands: Mapping[str, reports.WaitsInCollective] = field(default_factory=dict)
    awaits_ends: bool = False
    exits: Mapping[str, ExitStatus] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    interrupted: str = ""
    recovers: bool = False
    keeps: bool = False
    saved: frozenset[str] = frozenset()
    stayed: Mapping[str, int] = field(default_factory=dict)
    in_place: bool = False
    afresh: bool = False
    killed: bool = False
    recoverable: bool = False
    resumes: bool = False
    resumed: bool = False
    preempting: bool = False
    preempted: bool = False
    in_memory: bool = False
    regrouping: frozenset[str] = frozenset()
    one_each: str = ""
    saved_step: int | None = None
    unsaved: str = ""
    replacements: int = 0
    replaced: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    applied: int = -1

    @property
    def chief(self) -> str:
        """The task that saves the job's state."""
        return self.tasks[0].name

    @property
    def has_servers(self) -> bool:
        """True when the training's state is on servers: no task has a copy that it could keep."""
        return any(task.runs == "server" for task in self.tasks)

    def is_aside(self, task: str) -> bool:
        """True for a task that the job's end does not depend on."""
        return any(planned.name == task and planned.is_aside for planned in self.tasks)

    # Cached: of a thousand machines each that comes or goes asks again.
    @cached_property
    def agents(self) -> frozenset[str]:
        return frozenset(task.agent for task in self.tasks)

    @property
    def is_over(self) -> bool:
        """True when no task's process can be left: each has ended, or its agent is lost."""
        return not self.remaining

    @cached_property
    def remaining(self) -> frozenset[str]:
        """The tasks whose processes may still be there."""
        here = (task for task in self.tasks if task.agent not in self.lost)
        return frozenset(task.name for task in here) - set(self.exits)

    @property
    def waiting(self) -> frozenset[str]:
        """The tasks whose processes wait for the next round."""
        return self.remaining & set(self.stayed)

    @property
    def awaited(self) -> frozenset[str]:
        """The tasks whose processes are in the round still."""
        return self.remaining - set(self.stayed)

    @cached_property
    def followers(self) -> frozenset[str]:
        """The tasks that have said that a peer of theirs has gone."""
        return frozenset(f.task for f in self.failures if f.follows_from_a_peer)

    @property
    def has_regrouped(self) -> bool:
        """True when its workers have left because they were asked to, and nothing has failed."""
        asked = self.regrouping or self.one_each
        return bool(asked) and self.followers >= {f.task for f in self.failures}

    @property
    def can_save(self) -> bool:
        """True when the chief has all that has been trained."""
        return self.resumed or not self.resumes

    @property
    def root_cause(self) -> Failure | None:
        """The earliest failure; where the others would have been mended, the script's own."""
        own = [failure for failure in self.failures if cause_of(failure) is Cause.SCRIPT]
        return root_cause(own if self.recovers and own else self.failures)


# --- what it hears of -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AgentJoined:
    agent: str


@dataclass(frozen=True, kw_only=True)
class AgentPrepared:
    agent: str
    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class AgentLost:
    """The agent's connection broke, it went silent, it could not prepare, or its zygote died.

    `spare`: the next round can do without it, or have it again.
    """

    agent: str
    failure: Failure
    spare: bool = False


R = TypeVar("R", bound=reports.Report, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Reported(Generic[R]):
    """A worker's code has reported something.

    `strict`: --strict makes this error of a doubt. `port`: reserved for one that stays.
    """

    task: str
    time: float
    report: R
    strict: bool = False
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    """The job shall end at once; `signal` names what came."""

    signal: str


@dataclass(frozen=True, kw_only=True)
class ChangeMachines:
    """The workers shall leave between two steps, because machines come or go.

    `agents`: those that stand by to be taken in, or are being preempted. `within`: after so many
    seconds no step's end is waited for; None means ever.
    """

    agents: frozenset[str]
    within: float | None = None


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """The job's machines are being preempted: the state is saved first."""


@dataclass(frozen=True, kw_only=True)
class GraceOver:
    """The time of `SetGrace` has run out."""


@dataclass(frozen=True, kw_only=True)
class TimedOut:
    """The timer that was set on entering `state` has run out."""

    state: State
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class EndsAwaited:
    """The time of `AwaitEnds` has run out."""


@dataclass(frozen=True, kw_only=True)
class StayDecided:
    """The answer to `DecideStay`: the next round is in place; or those that wait have to leave."""

    in_place: bool


Event = (
    AgentJoined
    | AgentPrepared
    | AgentLost
    | Reported[Any]
    | WorkerExited
    | MemorySaved
    | EndsAwaited
    | StayDecided
    | Interrupt
    | ChangeMachines
    | Preempt
    | GraceOver
    | TimedOut
)


# --- what it asks for -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrepareAgents:
    """Have each agent reserve its ports and import TensorFlow."""


@dataclass(frozen=True, kw_only=True)
class StartTasks:
    """Start every task, with the ports in `Round.ports`."""


@dataclass(frozen=True, kw_only=True)
class ReplaceTask:
    """Start a task again at its address, after `failure`."""

    task: str
    failure: Failure


@dataclass(frozen=True, kw_only=True)
class GoOnWithout:
    """A task that the job does not depend on has ended for good, by `failure`."""

    failure: Failure


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """Feed `TimedOut(state=…)` in `seconds`; an earlier timer of that state is void."""

    state: State
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SetGrace:
    """Feed `GraceOver()` in `seconds`, whichever round it is then."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class AwaitEnds:
    """Feed `EndsAwaited()` in `seconds`: all scripts end, or wait, in one moment, mostly."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class DecideStay:
    """Feed `StayDecided` at once: all are out of the round, and `Round.waiting` wait."""


@dataclass(frozen=True, kw_only=True)
class GiveUpAgents:
    """Count these machines as lost, each by `AgentLost`: what runs there cannot be ended."""

    agents: frozenset[str]


Action = (
    PrepareAgents
    | StartTasks
    | ReplaceTask
    | GoOnWithout
    | GiveUpAgents
    | DecideStay
    | SetTimer
    | SetGrace
    | AwaitEnds
    | Message
)

Result = tuple[Round, tuple[Action, ...]]
"""The round after an event, and what has to be done about it."""
