"""What a worker's process reports to its agent, and the agent to the controller, kind by kind.

`events.jsonl` has each as {"event": "worker_report", "task": …, "report": {"kind": …, …}}, with
these names: they are read by machines, and stay. A field that is None, and None by default, is left
out there and on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from tfrun.job.record import Record, fields_of, made


class Report(Record):
    """Base of all; `decisive`: the job's fate depends on it, so that it has to arrive."""

    decisive: ClassVar[bool] = False


# --- how the script ends ------------------------------------------------------------------------


class Error(Report):
    """The script raised, and its process is about to end.

    `message` and `traceback` are of a bounded size. `notes` are Python's, `exceptions` those of a
    group, `cause` and `context` what it came of, `line` the source where there is no message,
    `code` one of tfrun's own, `where` the call that the worker was in.
    """

    kind, decisive = "error", True
    type: str
    message: str = ""
    traceback: str = ""
    notes: list[str] | None = None
    exceptions: list[str] | None = None
    cause: str | None = None
    context: str | None = None
    line: str | None = None
    code: str | None = None
    where: str | None = None


class Done(Report):
    """The script has ended well, and its process waits to be released.

    `collectives`: how many host collectives it took part in; None when it has met nobody.
    """

    kind, decisive = "done", True
    collectives: int | None


class EndedAt(Report):
    """The step at which a process has died, as its agent has seen it."""

    kind = "ended_at"
    step: int


# --- what the controller decides by --------------------------------------------------------------


class WaitsInCollective(Report):
    """The worker waits in its host collective of this `number`; `mark` tells which one it is."""

    kind, decisive = "stands", True
    number: int
    mark: str
    where: str


class WorkerPreempted(Report):
    """The process was sent SIGTERM: the system takes its machine back."""

    kind, decisive = "wanted_back", True


class StateSaved(Report):
    """The training's state is on disk, as it was asked for; `step` is None without a training."""

    kind, decisive = "job_saved", True
    step: int | None


class StateNotSaved(Report):
    """It could not be saved so far; `for_good`: nor will it."""

    kind, decisive = "job_not_saved", True
    reason: str
    for_good: bool = False


class DoubtRaised(Report):
    """What is done is probably not meant; `alone`: no other worker could know."""

    kind, decisive = "doubt", True
    code: str
    text: str
    alone: bool | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    @property
    def error(self) -> Error:
        """The failure that --strict makes of it."""
        return Error(type="", message=str(self), traceback=str(self), code=self.code)


class OneReplicaEach(Report):
    """The script cannot have several replicas on a worker, as `reason` says: one each, then."""

    kind, decisive = "one_replica_each", True
    reason: str


# --- how far the training is ---------------------------------------------------------------------


class Placed(Report):
    """Base: a training's place, as call, epoch and step of it; and the steps of all of it."""

    key: list[int] = field(default_factory=list)
    step: int


class SnapshotTaken(Placed):
    """The worker has written its state to the machine's memory, which took so long."""

    kind = "snapshot"
    seconds: float = 0.0


class Resumed(Placed):
    """It stands where an earlier run of the script was cut off, and waits for "go"."""

    kind = "resumed"


class Stayed(Placed):
    """It is out of its round, keeps this place's state in its process, and waits for "round"."""

    kind, decisive = "stayed", True


class Comes(Report):
    """A peer has gone, and it is busy with something that will end; said again and again."""

    kind = "comes"


class Ready(Report):
    """A successor has traced its step, and waits for "round"."""

    kind, decisive = "ready", True


class CanStay(Report):
    """Whether it could stay in its process if a peer went now, and why not.

    `overlaps`: it has traced sums that begin early; a successor has to do as it did.
    """

    kind = "can_stay"
    can: bool
    why: str = ""
    overlaps: bool = False


class LoopTraced(Report):
    """The chief has traced something in a loop of the script's own, in the training `call`.

    `trace` says what, to a successor: see engine/trace_ahead.py.
    """

    kind = "loop_traced"
    call: int
    trace: str


class FirstStep(Placed):
    """It has made the first `made` steps of a training, in this process."""

    kind = "first_step"
    made: int = 1


class Applied(Placed):
    """The parameter servers have come to this step; the chief says so."""

    kind = "applied"


class CheckpointWritten(Report):
    """One of tfrun's own checkpoints, of this step, is on the disk."""

    kind = "checkpoint"
    step: int


class CheckpointSaved(Report):
    """A script that saves by itself has come to this step."""

    kind = "saved"
    step: int


class CheckpointRestored(Report):
    """It has restored this step."""

    kind = "restored"
    step: int


# --- what people are shown -----------------------------------------------------------------------


class WorkerNotice(Report):
    kind = "notice"
    text: str


class Training(Report):
    """A training begins: its global batch, samples an epoch, learning rate (for people).

    `script_batch` is the script's own batch, where the job has another one.
    """

    kind = "training"
    global_batch: int | None
    samples: int | None
    workers: int
    rate: dict = field(default_factory=dict)
    compression: str = ""
    script_batch: int | None = None


class FitBegin(Report):
    """`epochs` of `steps` each; None where nobody knows."""

    kind = "fit_begin"
    epochs: int | None
    steps: int | None


class EpochEnd(Report):
    """An epoch, from 0, with its `steps`, which took `seconds`, and Keras's logs."""

    kind = "epoch_end"
    epoch: int
    steps: int = 0
    seconds: float = 0.0
    steps_per_second: float | None = None
    samples: int | None = None
    samples_per_second: float | None = None
    logs: dict = field(default_factory=dict)


class FitEnd(Report):
    """The same of a whole call."""

    kind = "fit_end"
    steps: int = 0
    seconds: float = 0.0
    steps_per_second: float | None = None
    samples: int | None = None
    samples_per_second: float | None = None
    logs: dict = field(default_factory=dict)


class StepsMade(Report):
    """The steps since the last report, once a second; the controller sums them up for the events.

    `call` numbers the training, `epoch` is from 0, `in_epoch` counts its steps that are done,
    `step` those of the training; `steps` took `seconds`, divided by `split` into
    `observe.numbers.PARTS`. `rss` and `gpu` are bytes, `cpu` processors in use; `network` are the
    seconds that sending to `network_to` took; `aside` those of no step, by their kind.
    """

    kind = "progress"
    epoch: int
    in_epoch: int
    step: int
    steps: int
    seconds: float
    split: list
    rss: int
    cpu: float
    network: float | None = None
    network_to: str | None = None
    aside: dict | None = None
    logs: dict | None = None
    gpu: int | None = None
    call: int | None = None


class Staleness(Report):
    """How many updates were so many updates late, on parameter servers."""

    kind = "staleness"
    histogram: list[int]


class Evaluated(Report):
    """What the evaluator has found of a step."""

    kind = "evaluated"
    call: int
    step: int
    logs: dict


class Skipped(Report):
    """A sample is left out, because it cannot be read; `source` counts the script's sources."""

    kind = "skipped"
    source: int
    sample: int
    why: str


class Profiled(Report):
    """The answer to `tfrun profile`: these steps were traced, or what went wrong."""

    kind = "profiled"
    name: str
    first: int
    last: int
    problem: str


# --- between tfrun's own parts -------------------------------------------------------------------


class Kept(Report):
    """What could be kept is; the agent alone hears of it."""

    kind = "kept"


class Weights(Report):
    """A digest of the weights after a call, for `tfrun drill`."""

    kind = "weights"
    call: int
    digest: str


class Measured(Report):
    """What a job of `tfrun bench` has measured; seconds, unless the name says more."""

    kind = "measured"
    workers: int
    all_reduce: list
    link: float | None
    gpus: bool
    threads: int
    small_bytes: int | None = None
    pack_bytes: int | None = None
    step_seconds: list[float]


def encode(report: Report) -> dict[str, Any]:
    """Returns a report as JSON has it."""
    stated = fields_of(type(report))
    shown = {k: v for k, v in vars(report).items() if v is not None or not stated[k].is_optional}
    return {"kind": report.kind, **shown}


def decode(values: Any) -> Report:
    """Reads a report. It comes from the user's process, which may write anything.

    Fields that are not known here, such as another version's, are left out.

    Raises:
      ValueError: it is none.
    """
    found = values if isinstance(values, dict) else {}
    stated = {name: value for name, value in found.items() if value is not None}
    return made(Report, found.get("kind"), stated)


def read(values: Any) -> Report | None:
    """Returns what `decode` does; None for what is no report."""
    try:
        return decode(values)
    except ValueError:
        return None


def of(event: Mapping[str, Any]) -> Report | None:
    """Returns the report that an event of `events.jsonl` holds; None where it holds none."""
    return read(event.get("report")) if event.get("event") == "worker_report" else None
