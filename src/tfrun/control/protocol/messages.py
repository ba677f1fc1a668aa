"""The messages between controller and agents; see `protocol.wire` for how they travel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tfrun.control.protocol.wire import Message

# --- from agent to controller ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hello(Message):
    """The first message of an agent; `programs`: what `protocol.versions` has found."""

    kind: ClassVar[str] = "hello"
    agent: str
    host: str
    pid: int
    version: str
    programs: dict


@dataclass(frozen=True, kw_only=True)
class Prepared(Message):
    """The agent can start its tasks: TensorFlow is imported and the ports are reserved."""

    kind: ClassVar[str] = "prepared"
    round: int
    ports: list[int]
    import_seconds: float


@dataclass(frozen=True, kw_only=True)
class PrepareFailed(Message):
    """The agent cannot start tasks, for example because TensorFlow does not import."""

    kind: ClassVar[str] = "prepare_failed"
    round: int
    code: str
    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class WorkerStarted(Message):
    kind: ClassVar[str] = "worker_started"
    round: int
    task: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class WorkerReport(Message):
    """What a worker's own code reported: `{"kind": "error" | "done" | "fit_end" | …}`."""

    kind: ClassVar[str] = "worker_report"
    round: int
    task: str
    time: float
    report: dict


@dataclass(frozen=True, kw_only=True)
class WorkerExited(Message):
    """A worker's process has ended.

    `code` is -N for signal N, `requested` says that the agent had sent that signal, `tail` is
    the end of its standard error.
    """

    kind: ClassVar[str] = "worker_exited"
    round: int
    task: str
    time: float
    code: int
    out_of_memory: bool
    requested: bool
    tail: str


@dataclass(frozen=True, kw_only=True)
class Output(Message):
    """A piece of a worker's output; `stream` is "stdout" or "stderr"."""

    kind: ClassVar[str] = "output"
    task: str
    stream: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Log(Message):
    """More of a log file of the agent's machine, which does not see the launcher's disk."""

    kind: ClassVar[str] = "log"
    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Notice(Message):
    """Something a person should know that stops nothing, for example a full disk."""

    kind: ClassVar[str] = "notice"
    text: str


@dataclass(frozen=True, kw_only=True)
class Preempted(Message):
    """The agent was sent SIGTERM: its machine is being preempted. It works on until it is told."""

    kind: ClassVar[str] = "wanted_back"
    agent: str


@dataclass(frozen=True, kw_only=True)
class MemorySaved(Message):
    """What became of `SaveMemory`.

    `step` is on disk, or -1 when nothing in memory was newer; `problem` says what went wrong.
    """

    kind: ClassVar[str] = "memory_saved"
    round: int
    step: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Message):
    kind: ClassVar[str] = "heartbeat"
    agent: str


@dataclass(frozen=True, kw_only=True)
class StacksTaken(Message):
    """A worker's Python stacks, as faulthandler writes them; "" when it did not answer."""

    kind: ClassVar[str] = "stacks_taken"
    round: int
    task: str
    text: str


# --- from a machine that is to join by hand, and the answers; before its agent is started -----


@dataclass(frozen=True, kw_only=True)
class Enrol(Message):
    """A machine wants to take part; `identity` is another one for each `tfrun join`."""

    kind: ClassVar[str] = "enrol"
    name: str
    identity: str
    slots: int
    version: str


@dataclass(frozen=True, kw_only=True)
class CannotRun(Message):
    """An enrolled machine's agent could not start there."""

    kind: ClassVar[str] = "cannot_run"
    agent: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Enrolled(Message):
    """It may: its agent has this name, and gets this as its `JobSpec`."""

    kind: ClassVar[str] = "enrolled"
    agent: str
    attempt: int
    spec: dict


@dataclass(frozen=True, kw_only=True)
class Refused(Message):
    """It may not; `over`: because the job has ended."""

    kind: ClassVar[str] = "refused"
    code: str
    reason: str
    over: bool


# --- from controller to agent ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Prepare(Message):
    """Reserve `ports` ports for the round and have TensorFlow imported.

    `stated` are ports that a cluster file names for this machine's tasks: they have to be free.
    """

    kind: ClassVar[str] = "prepare"
    round: int
    ports: int
    stated: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StartRound(Message):
    """Start these tasks, each as `plan.start_messages` describes it."""

    kind: ClassVar[str] = "start_round"
    round: int
    tasks: list


@dataclass(frozen=True, kw_only=True)
class Release(Message):
    """Every task has finished its script: the processes may end now."""

    kind: ClassVar[str] = "release"
    round: int


@dataclass(frozen=True, kw_only=True)
class Ended(Message):
    """These tasks' scripts have ended while others go on: they join no collective any more.

    Each with the number of its last host collective; null where it has met nobody.
    """

    kind: ClassVar[str] = "ended"
    round: int
    tasks: dict


@dataclass(frozen=True, kw_only=True)
class Parted(Message):
    """The workers wait in different collectives, for ever; where each is, in words."""

    kind: ClassVar[str] = "parted"
    round: int
    places: dict


@dataclass(frozen=True, kw_only=True)
class Save(Message):
    """Have the training's state saved to disk at the next step: the machine is being preempted."""

    kind: ClassVar[str] = "save"
    round: int


@dataclass(frozen=True, kw_only=True)
class SaveMemory(Message):
    """Save to disk the newest state in this machine's memory; no worker is left there."""

    kind: ClassVar[str] = "save_memory"
    round: int


@dataclass(frozen=True, kw_only=True)
class Leave(Message):
    """A worker of the round has gone: the others keep their state and leave."""

    kind: ClassVar[str] = "leave"
    round: int


@dataclass(frozen=True, kw_only=True)
class Regroup(Message):
    """Machines come, or go: the workers keep their state and leave between two steps."""

    kind: ClassVar[str] = "regroup"
    round: int


@dataclass(frozen=True, kw_only=True)
class TakeStacks(Message):
    """Have each worker show its Python stacks; it goes on with its work."""

    kind: ClassVar[str] = "take_stacks"
    round: int
    threads: bool


@dataclass(frozen=True, kw_only=True)
class Profile(Message):
    """Have each worker trace some of its steps, as `job.profile_request.Request` says."""

    kind: ClassVar[str] = "profile"
    round: int
    first: int
    steps: int
    folder: str
    name: str


@dataclass(frozen=True, kw_only=True)
class StopRound(Message):
    """Send `signal` to workers now and SIGKILL to those still there `grace` seconds later.

    `tasks` names the workers; none means all.
    """

    kind: ClassVar[str] = "stop_round"
    round: int
    signal: str
    grace: float
    tasks: list[str]


@dataclass(frozen=True, kw_only=True)
class Shutdown(Message):
    """The job is over, or goes on without this machine: clean up and leave.

    `preempted`: because the machine is being preempted; nothing is lost by its end.
    `lost`: it was given up already, and may come anew.
    """

    kind: ClassVar[str] = "shutdown"
    preempted: bool = False
    lost: bool = False
