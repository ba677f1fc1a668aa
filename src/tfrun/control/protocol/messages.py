"""The messages between controller and agents; see `protocol.wire` for how they travel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from tfrun.control.protocol.wire import Message
from tfrun.job.exits import ExitStatus
from tfrun.job.record import Record
from tfrun.job.settings import OwnSettings


class RoundMessage(Message):
    """Base of those that are about one round: what comes late of another one is left out."""

    round: int


# --- from agent to controller ---------------------------------------------------------------


class Hello(Message):
    """The first message of an agent; `programs`: what `protocol.versions` has found."""

    kind = "hello"
    agent: str
    host: str
    pid: int
    version: str
    programs: dict


class Prepared(RoundMessage):
    """The agent can start its tasks: TensorFlow is imported and the ports are reserved."""

    kind = "prepared"
    ports: list[int]
    import_seconds: float


class PrepareFailed(RoundMessage):
    """The agent cannot start tasks, for example because TensorFlow does not import."""

    kind = "prepare_failed"
    code: str
    reason: str
    detail: str


class WorkerStarted(RoundMessage):
    kind = "worker_started"
    task: str
    pid: int


class WorkerReport(RoundMessage):
    """What a worker's own code reported: `{"kind": "error" | "done" | "fit_end" | …}`.

    `port` is reserved for the worker's place in the next round, where it stays; else 0.
    """

    kind = "worker_report"
    task: str
    time: float
    report: dict
    port: int = 0


class WorkerExited(RoundMessage):
    """A worker's process has ended.

    `code` is -N for signal N, `requested` says that the agent had sent that signal, `tail` is
    the end of its standard error.
    """

    kind = "worker_exited"
    task: str
    time: float
    code: int
    out_of_memory: bool
    requested: bool
    tail: str

    @property
    def status(self) -> ExitStatus:
        return ExitStatus(code=self.code, out_of_memory=self.out_of_memory)


class SuccessorStarted(Message):
    """A successor runs its script, beside the job."""

    kind = "successor_started"
    successor: str
    pid: int


class SuccessorReady(Message):
    """Its step is traced, and it waits; `port` is reserved for its place in a round."""

    kind = "successor_ready"
    successor: str
    port: int


class SuccessorExited(Message):
    """Its process has ended before it had a place; the fields are those of `WorkerExited`."""

    kind = "successor_exited"
    successor: str
    code: int
    out_of_memory: bool
    tail: str

    @property
    def status(self) -> ExitStatus:
        return ExitStatus(code=self.code, out_of_memory=self.out_of_memory)


class Output(Message):
    """A piece of a worker's output; `stream` is "stdout" or "stderr"."""

    kind = "output"
    task: str
    stream: str
    text: str


class Log(Message):
    """More of a log file of the agent's machine, which does not see the launcher's disk."""

    kind = "log"
    name: str
    text: str


class Notice(Message):
    """Something a person should know that stops nothing, for example a full disk."""

    kind = "notice"
    text: str


class Preempted(Message):
    """The agent was sent SIGTERM: its machine is being preempted. It works on until it is told."""

    kind = "wanted_back"
    agent: str


class MemorySaved(RoundMessage):
    """What became of `SaveMemory`.

    `step` is on disk, or -1 when nothing in memory was newer; `problem` says what went wrong.
    """

    kind = "memory_saved"
    step: int
    problem: str


class Heartbeat(Message):
    kind = "heartbeat"
    agent: str


class StacksTaken(RoundMessage):
    """A worker's Python stacks, as faulthandler writes them; "" when it did not answer."""

    kind = "stacks_taken"
    task: str
    text: str


# --- from a machine that is to join by hand, and the answers; before its agent is started -----


class Enrol(Message):
    """A machine wants to take part; `identity` is another one for each `tfrun join`."""

    kind = "enrol"
    name: str
    identity: str
    slots: int
    version: str


class CannotRun(Message):
    """An enrolled machine's agent could not start there."""

    kind = "cannot_run"
    agent: str
    reason: str


class Enrolled(Message):
    """It may: its agent has this name, and gets this as its `JobSpec`."""

    kind = "enrolled"
    agent: str
    attempt: int
    spec: dict


class Refused(Message):
    """It may not; `over`: because the job has ended."""

    kind = "refused"
    code: str
    reason: str
    over: bool


# --- from controller to agent ---------------------------------------------------------------


class Prepare(RoundMessage):
    """Reserve `ports` ports for the round and have TensorFlow imported.

    `stated` are ports that a cluster file names for this machine's tasks: they have to be free.
    """

    kind = "prepare"
    ports: int
    stated: list[int] = field(default_factory=list)


class StartTask(Record):
    """A task that an agent is to start.

    Attributes:
      task: its name.
      runs: "script", or "server" for one that serves until the end.
      show: its output is passed on, besides its log.
      muted: not before it has restored its state.
      terminal: rows and columns, when its standard output is to look like a terminal.
      called: what it is called in its cluster.
      awaits: the peers that it waits for in the workers' start, each as (task, address).
      environment: of its process, on top of the machine's.
      settings: in which it differs from the others of its machine.
      takes: the process that waits for this place: the name of a task of the round before, which
        has stayed, or of a successor; "" is a new process.
    """

    task: str
    runs: str
    show: bool
    muted: bool
    terminal: list[int] | None
    called: str
    awaits: Sequence[Sequence[str]]
    environment: dict[str, str]
    settings: OwnSettings
    takes: str = ""


class StartRound(RoundMessage):
    """Start these tasks, each a `StartTask` as JSON has it.

    `in_place`: the round begins here and now, without `Prepare`, with processes that wait.
    """

    kind = "start_round"
    tasks: list
    in_place: bool = False

    @classmethod
    def of(cls, round: int, tasks: Iterable[StartTask], *, in_place: bool = False) -> StartRound:
        return cls(round=round, tasks=[vars(task) for task in tasks], in_place=in_place)

    @property
    def each(self) -> list[StartTask]:
        return [StartTask(**task) for task in self.tasks]


class StartSuccessor(Message):
    """Start a successor that is to become `task`, a `StartTask` as JSON has it."""

    kind = "start_successor"
    successor: str
    task: dict

    @property
    def started(self) -> StartTask:
        return StartTask(**self.task)


class StopSuccessors(Message):
    """End these successors at once; none means all. Nobody asks how they end."""

    kind = "stop_successors"
    successors: list[str] = field(default_factory=list)


class Release(RoundMessage):
    """Every task has finished its script: the processes may end now."""

    kind = "release"


class Ended(RoundMessage):
    """These tasks' scripts have ended while others go on: they join no collective any more.

    Each with the number of its last host collective; null where it has met nobody.
    """

    kind = "ended"
    tasks: dict


class Parted(RoundMessage):
    """The workers wait in different collectives, for ever; where each is, in words."""

    kind = "parted"
    places: dict


class Save(RoundMessage):
    """Have the training's state saved to disk at the next step: the machine is being preempted."""

    kind = "save"


class SaveMemory(RoundMessage):
    """Save to disk the newest state in this machine's memory; no worker is left there."""

    kind = "save_memory"


class Leave(RoundMessage):
    """A worker of the round has gone: the others stay, or keep their state and leave.

    The second time in a round those that have stayed leave as well.
    """

    kind = "leave"


class Regroup(RoundMessage):
    """Machines come, or go: the workers keep their state and leave between two steps."""

    kind = "regroup"


class TakeStacks(RoundMessage):
    """Have each worker show its Python stacks; it goes on with its work."""

    kind = "take_stacks"
    threads: bool


class Profile(RoundMessage):
    """Have each worker trace some of its steps, as `job.profile_request.Request` says."""

    kind = "profile"
    first: int
    steps: int
    folder: str
    name: str


class StopRound(RoundMessage):
    """Send `signal` to workers, and SIGKILL to those still there `grace` seconds later.

    Scripts have `after` seconds before that to end by themselves. `tasks` names the workers; none
    means all.
    """

    kind = "stop_round"
    signal: str
    grace: float
    tasks: list[str] = field(default_factory=list)
    after: float = 0.0


class Shutdown(Message):
    """The job is over, or goes on without this machine: clean up and leave.

    `preempted`: because the machine is being preempted; nothing is lost by its end.
    `lost`: it was given up already, and may come anew.
    """

    kind = "shutdown"
    preempted: bool = False
    lost: bool = False
