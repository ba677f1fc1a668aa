"""A round: what is known of it, what it hears (events), what it asks for (actions)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tfrun.control.rounds.unkillable import GiveUpAgents
from tfrun.control.rounds.waits import Stands, WaitAction, WaitEvent
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
      ended: the tasks whose scripts have come to their end, each with `TaskDone.collectives`.
      stands: in which collective each has said to wait, the last time.
      awaits_ends: an `EndsAwaited` is on its way.
      recovers: a failure that is not the script's own shall lead to the next round.
      keeps: its workers keep their state for it, also where no round can follow.
      saved: the tasks that have reported a snapshot.
      killed: those that did not leave by themselves have been sent SIGKILL.
      recoverable: it has ended, and the next round may go on.
      regrouping: the machines, coming or going, for which the workers were asked to leave.
      resumes: its scripts go on from a state in the machines' memory.
      resumed: the chief has restored it.
      preempting: the system wants the machines back; the training's state is being saved.
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
    stands: Mapping[str, Stands] = field(default_factory=dict)
    awaits_ends: bool = False
    exits: Mapping[str, ExitStatus] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    interrupted: str = ""
    recovers: bool = False
    keeps: bool = False
    saved: frozenset[str] = frozenset()
    killed: bool = False
    recoverable: bool = False
    resumes: bool = False
    resumed: bool = False
    preempting: bool = False
    preempted: bool = False
    in_memory: bool = False
    regrouping: frozenset[str] = frozenset()
    saved_step: int | None = None
    unsaved: str = ""
    replacements: int = 0
    replaced: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    applied: int = -1

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

    def tasks_of(self, agent: str) -> tuple[PlannedTask, ...]:
        return tuple(task for task in self.tasks if task.agent == agent)

    @property
    def is_over(self) -> bool:
        """True when no task's process can be left: each has ended, or its agent is lost."""
        return all(task.name in self.exits or task.agent in self.lost for task in self.tasks)

    @cached_property
    def remaining(self) -> frozenset[str]:
        """The tasks whose processes may still be there."""
        here = (task for task in self.tasks if task.agent not in self.lost)
        return frozenset(task.name for task in here) - set(self.exits)

    @cached_property
    def followers(self) -> frozenset[str]:
        """The tasks that have said that a peer of theirs has gone."""
        return frozenset(f.task for f in self.failures if f.follows_from_a_peer)

    @property
    def has_regrouped(self) -> bool:
        """True when its workers have left because they were asked to, and nothing has failed."""
        return bool(self.regrouping) and self.followers >= {f.task for f in self.failures}

    @property
    def can_save(self) -> bool:
        """True when the chief has all that has been trained."""
        return self.resumed or not self.resumes

    @property
    def root_cause(self) -> Failure | None:
        """The earliest failure; where the others would have been mended, the script's own."""
        own = [failure for failure in self.failures if cause_of(failure) is Cause.SCRIPT]
        return root_cause(own if self.recovers and own else self.failures)


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
    """The agent's connection broke, it went silent, it could not prepare, or its zygote died.

    `spare`: the next round can do without it, or have it again.
    """

    agent: str
    failure: Failure
    spare: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskDone:
    """The script has finished without error; the process waits for its release.

    `collectives`: how many host collectives it took part in; None when it has met nobody.
    """

    task: str
    collectives: int | None = None


@dataclass(frozen=True, kw_only=True)
class TaskSaved:
    """A worker has written a snapshot of its state."""

    task: str


@dataclass(frozen=True, kw_only=True)
class ChiefResumed:
    """The chief stands where the round before was cut off, or further on."""


@dataclass(frozen=True, kw_only=True)
class StepsApplied:
    """The chief of a training whose state is on servers has come to this step."""

    step: int


@dataclass(frozen=True, kw_only=True)
class JobSaved:
    """The training's state has been saved for good, as it was asked for.

    `step`: of the training that runs; None when none does, and all is saved already.
    """

    step: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobNotSaved:
    """It could not be saved so far; `for_good`: nor will it."""

    reason: str
    for_good: bool = False


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
    """The job shall end at once; `signal` names what came."""

    signal: str


@dataclass(frozen=True, kw_only=True)
class Regroup:
    """The workers shall leave between two steps.

    `agents`: machines that stand by to be taken in, or are wanted back. `within`: after so many
    seconds no step's end is waited for; None means ever.
    """

    agents: frozenset[str]
    within: float | None = None


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """The system wants the job's machines back: the state is saved first."""


@dataclass(frozen=True, kw_only=True)
class GraceOver:
    """The time of `SetGrace` has run out."""


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
    | WaitEvent
    | TaskSaved
    | ChiefResumed
    | StepsApplied
    | JobSaved
    | JobNotSaved
    | TaskRaised
    | TaskExited
    | Interrupt
    | Regroup
    | Preempt
    | GraceOver
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
class ReplaceTask:
    """Start a task again at its address, after `failure`."""

    task: str
    failure: Failure


@dataclass(frozen=True, kw_only=True)
class GoOnWithout:
    """A task that the job does not depend on has ended for good, by `failure`."""

    failure: Failure


@dataclass(frozen=True, kw_only=True)
class ReleaseTasks:
    """Let the finished processes end, and stop the servers."""


@dataclass(frozen=True, kw_only=True)
class LeaveTasks:
    """Tell all workers that a peer has gone: they keep their state and leave by themselves."""


@dataclass(frozen=True, kw_only=True)
class SaveTasks:
    """Have the training's state saved at the next step."""


@dataclass(frozen=True, kw_only=True)
class SaveMemory:
    """Have a machine save the newest state in its memory; no worker is left."""


@dataclass(frozen=True, kw_only=True)
class RegroupTasks:
    """Have all workers keep their state and leave between two steps."""


@dataclass(frozen=True, kw_only=True)
class StopTasks:
    """Send `signal` to `tasks`, or to all; SIGKILL to those after `grace` seconds."""

    signal: str
    grace: float
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """Feed `TimedOut(state=…)` in `seconds`; an earlier timer of that state is void."""

    state: State
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SetGrace:
    """Feed `GraceOver()` in `seconds`, whichever round it is then."""

    seconds: float


Action = (
    PrepareAgents
    | StartTasks
    | ReplaceTask
    | GoOnWithout
    | ReleaseTasks
    | WaitAction
    | LeaveTasks
    | SaveTasks
    | SaveMemory
    | RegroupTasks
    | StopTasks
    | GiveUpAgents
    | SetTimer
    | SetGrace
)

Result = tuple[Round, tuple[Action, ...]]
"""The round after an event, and what has to be done about it."""
