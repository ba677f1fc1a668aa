"""The actions that a round asks for; the round runner carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfrun.control.rounds.model import Round, State
from tfrun.job.first_failure import Failure


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


@dataclass(frozen=True, kw_only=True)
class AwaitEnds:
    """Feed `EndsAwaited()` in `seconds`: all scripts end, or wait, in one moment, mostly."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class TellEnded:
    """Tell the workers whose scripts run which ones have ended, with `TaskDone.collectives`."""

    tasks: Mapping[str, int | None]


@dataclass(frozen=True, kw_only=True)
class TellParted:
    """Tell the workers, which wait in different collectives, where each is, in words."""

    places: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class GiveUpAgents:
    """Count these machines as lost, each by `AgentLost`: what runs there cannot be ended."""

    agents: frozenset[str]


Action = (
    PrepareAgents
    | StartTasks
    | ReplaceTask
    | GoOnWithout
    | ReleaseTasks
    | AwaitEnds
    | TellEnded
    | TellParted
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
