"""The messages between controller and agents: typed, versioned JSON objects.

Each message travels as one WebSocket text frame, `{"v": 1, "kind": "hello", …fields}`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrun.job.errors import TfrunError

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32  # of lists and objects within each other; the message is the first
_INT_LIMIT = 2**63


@dataclass(frozen=True, kw_only=True)
class Message:
    """Base of all messages; `kind` names the type on the wire."""

    kind: ClassVar[str] = ""


# --- from agent to controller ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hello(Message):
    """The first message of an agent."""

    kind: ClassVar[str] = "hello"
    agent: str
    host: str
    pid: int
    version: str
    python: str


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
class WantedBack(Message):
    """The agent was sent SIGTERM: its machine is wanted back. It works on until it is told."""

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
    """Reserve `ports` ports for the round and have TensorFlow imported."""

    kind: ClassVar[str] = "prepare"
    round: int
    ports: int


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
class Save(Message):
    """Have the training's state saved to disk at the next step: the machine is wanted back."""

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

    `preempted`: because the machine is wanted back; nothing is lost by its end.
    `lost`: it was given up already, and may come anew.
    """

    kind: ClassVar[str] = "shutdown"
    preempted: bool = False
    lost: bool = False


_KINDS: dict[str, type[Message]] = {cls.kind: cls for cls in Message.__subclasses__()}
_TYPES: dict[str, type | tuple[type, ...]] = {
    **{"str": str, "int": int, "float": (int, float), "bool": bool},
    **{"list": list, "list[int]": list, "list[str]": list, "dict": dict},
}


def encode(message: Message) -> str:
    """Returns the message's text frame, which `decode` takes whatever a worker has reported.

    What JSON, or another language's reader, cannot hold becomes text: NaN and infinities
    ("NaN", "Infinity", as in protobuf's JSON mapping), integers beyond 64 bits, lone surrogates
    (a file name that is no UTF-8), and what is nested too deep.
    """
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    return json.dumps(
        {"v": PROTOCOL_VERSION, "kind": message.kind, **_sendable(fields)},
        separators=(",", ":"),
        allow_nan=False,
    )


def _sendable(value: Any, depth: int = 1) -> Any:
    match value:
        case dict() | list() | tuple() if depth > MAX_DEPTH:
            return "…"
        case dict():
            return {_text(str(key)): _sendable(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_sendable(item, depth + 1) for item in value]
        case str():
            return _text(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case int() if not -_INT_LIMIT <= value < _INT_LIMIT:
            return hex(value)  # str() refuses thousands of digits
    return value


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def decode(text: str) -> Message:
    """Reads a text frame.

    Raises:
      TfrunError: TFRUN-302, when it is not a message of this protocol version.
    """
    try:
        values: Any = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_constant)
        _check(values)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"not JSON: {error!s:.100}") from None
    if not isinstance(values, dict):
        raise _malformed("not a JSON object")
    version = values.pop("v", None)
    if version != PROTOCOL_VERSION or type(version) is not int:
        raise _malformed(f"another protocol version than {PROTOCOL_VERSION}")
    kind = values.pop("kind", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise _malformed(f"unknown kind {kind!r:.60}")
    fields = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    if set(values) != set(fields):
        raise _malformed(f"fields of {kind!r} differ: {sorted(set(values) ^ set(fields))!r:.200}")
    for name, type_name in fields.items():
        if not _is_of_type(values[name], type_name):
            raise _malformed(f"field {name!r} of {kind!r} is not of type {type_name}")
    return cls(**values)


def _int(digits: str) -> int:
    # The length first: some Python versions take minutes for a million digits.
    if len(digits) > 20 or not -_INT_LIMIT <= (value := int(digits)) < _INT_LIMIT:
        raise ValueError("an integer of more than 64 bits")
    return value


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number beyond the range of a double")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _check(value: Any, depth: int = 1) -> None:
    """Raises ValueError for what a later `encode`, print or file could not take."""
    if isinstance(value, str):
        value.encode()  # refuses lone surrogates
        return
    if isinstance(value, (dict, list)):
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        if isinstance(value, dict):
            for key in value:
                key.encode()
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)


def _is_of_type(value: Any, type_name: str) -> bool:
    if isinstance(value, bool):  # an int to Python, not to the protocol
        return type_name == "bool"
    if type_name.startswith("list[") and isinstance(value, list):
        return all(_is_of_type(item, type_name[5:-1]) for item in value)
    return isinstance(value, _TYPES[type_name])


def _malformed(reason: str) -> TfrunError:
    return TfrunError("TFRUN-302", f"malformed control message: {reason}")
