"""The events that a round hears of: from agents, tasks, the system and its own timers."""

from __future__ import annotations

from dataclasses import dataclass

from tfrun.control.rounds.model import Stands, State
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Error


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
    """The script raised; its process is about to end. `strict`: --strict ends it for a doubt."""

    task: str
    time: float
    error: Error
    strict: bool = False


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

    `agents`: machines that stand by to be taken in, or are being preempted. `within`: after so many
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


Event = (
    AgentJoined
    | AgentPrepared
    | AgentLost
    | TaskDone
    | EndsAwaited
    | Stands
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
