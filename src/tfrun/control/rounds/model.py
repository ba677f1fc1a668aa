"""A round of a job: its states, its tasks, and all that is known of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

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
class Stands:
    """A worker has waited in one collective for some seconds.

    Attributes:
      task: its name.
      number: counts what the workers do together, one by one.
      mark: equal on all workers that do the same.
      where: in words.
    """

    task: str
    number: int
    mark: str
    where: str


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
