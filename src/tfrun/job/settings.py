"""What a worker has to know of its job: stated on the command line, completed by its agent."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from tfrun.job.errors import UsageError
from tfrun.job.trial_request import Trial

VARIABLE = "TFRUN_WORKER_SETTINGS"  # of a worker: its settings, in JSON
ROUND, RUN_DIR, STATE_DIR = "TFRUN_ROUND", "TFRUN_RUN_DIR", "TFRUN_STATE_DIR"
CHIEF_AWAY = "TFRUN_CHIEF_AWAY"
# Who a worker is and what has started its job; a job that it starts itself has its own of it.
_OF_THE_JOB = (
    *("TF_CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ROUND),
    *("SLURM_JOB_ID", "TFRUN_GROUP", "TFRUN_HEALTH_PORT"),
)
# No more digits than any training needs: int() refuses some thousands. And not "0s".
_SNAPSHOT_EVERY = re.compile(r"auto|[0-9]{1,9}|(?=.*[1-9])[0-9]{1,9}(\.[0-9]{1,9})?s")
_STEPS_PER_EXECUTION = re.compile(r"script|auto|[1-9][0-9]{0,4}")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What is stated for a job and acted upon by its workers, the same for all of them.

    Attributes:
      run_dir: absolute path of the directory that receives everything the job writes.
      strategy: "auto", where a script that names none gets the job's; or "script": it stays as it
        is.
      batch_times: how many of a script's batches make a global one.
      replicas: the pieces into which each global batch is divided; 0 is one for each worker.
      balance: "auto", where replicas move from slow workers to fast ones; or "off".
      in_place: whether workers whose peer dies go on in their processes: "on", "off", or "auto",
        as far as that costs nothing else.
      shard_optimizer: each worker updates some of the weights, and has the optimizer's state for
        these alone.
      communication: "auto", "host", "ring" or "nccl".
      compress: as what gradients travel: "off" (as they are), "bf16" or "fp16".
      overlap: whether the host collective begins to sum before the backward pass ends: "on",
        "off", or "auto": between machines.
      preferred: what "auto" is for workers without GPUs, "host" or "ring"; "" is tfrun's choice.
      small_bytes: sums up to so many bytes go to all at once in the host collective; None is its
        own choice.
      pack_bytes: of what TensorFlow's ring sends as one; None is tfrun's choice.
      shared_memory: whether the workers of a machine exchange gradients there; else by TCP.
      max_staleness: with parameter servers, how many updates late a gradient may be applied; None
        is any number.
      seed: the global random seed that every worker starts with.
      deterministic: have TensorFlow compute the same bits each time.
      steps_per_execution: how many steps of `fit` go into one call of TensorFlow: "script" (what it
        says), "auto" or a number.
      sync_check: compare all variables between workers every this many steps; 0 is never.
      max_restarts: how many new rounds in a row may follow failures without progress.
      snapshot_every: how often workers write a snapshot without a failure: "100" (steps),
        "30s" (seconds), "0" (never) or "auto".
      checkpoint_dir: absolute path of the directory for checkpoints, or the URL of a place in an
        object storage; "" is none.
      checkpoint_lease: by what the job's lease of that place shows; "" for a path.
      checkpoint_every: how often one is written: "500" (steps), "600s", "10m", "epoch", "off".
      keep: how many checkpoints are kept.
      ledger: number of the job in its run directory's ledger, from 1; 0 writes none.
      tensorboard: absolute path of the folder that Keras writes its logs for TensorBoard into; ""
        is none.
      own_rows: plain pipelines of arrays are read by rows, and batches have known sizes.
      chief_away: seconds after which a chief that is gone has ended, for servers that were started
        by hand; None is tfrun's choice.
      drill: workers tell a digest of the weights that each training ends with.
      trial: what training is to be cut short to; None is an ordinary job.
      stated: the options that stand on the command line, by the names that Python has for them.
    """

    run_dir: str = ""
    strategy: str = "auto"
    batch_times: int = 1
    replicas: int = 0
    balance: str = "off"
    in_place: str = "off"
    shard_optimizer: bool = False
    communication: str = "auto"
    compress: str = "off"
    overlap: str = "auto"
    preferred: str = ""
    small_bytes: int | None = None
    pack_bytes: int | None = None
    shared_memory: bool = True
    max_staleness: int | None = None
    seed: int = 0
    deterministic: bool = False
    steps_per_execution: str = "script"
    sync_check: int = 0
    max_restarts: int = 3
    snapshot_every: str = "auto"
    checkpoint_dir: str = ""
    checkpoint_lease: str = ""
    checkpoint_every: str = "10m"
    keep: int = 5
    ledger: int = 0
    tensorboard: str = ""
    own_rows: bool = True
    chief_away: float | None = None
    drill: bool = False
    trial: Trial | None = None
    stated: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(
            _SNAPSHOT_EVERY,
            self.snapshot_every,
            "does not say how often",
            where="--snapshot-every",
            expected='steps ("100"), seconds ("30s"), "auto", or "0" for never',
        )
        _check(
            _STEPS_PER_EXECUTION,
            self.steps_per_execution,
            "is not a number of steps",
            where="--steps-per-execution",
            expected='a whole number from 1 on, "auto", or "script" for what the script says',
        )

    @property
    def stays(self) -> bool:
        """Whether workers may go on in their processes when another one dies."""
        return self.in_place != "off"

    @property
    def recovers(self) -> bool:
        """False in a job that ends with its first failure: only its checkpoints need a state."""
        return self.max_restarts > 0

    @property
    def snapshots(self) -> str:
        """`snapshot_every`, or "0" where nobody would read one."""
        return self.snapshot_every if self.recovers else "0"


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(TrainingSettings):
    """What one worker acts upon. A process that no job of tfrun has started has the defaults.

    Attributes:
      task: its name in the job, "worker:0"; "" outside a job.
      default_replicas: what `replicas` is where nobody states it, see `replicas.by_default`.
      state_dir: absolute path of its machine's directory in memory for snapshots and signs of
        life, which lasts as long as the job; "" is none.
      collective_key: a secret of this round's workers, another one in each round of each job; ""
        where other jobs of tfrun run the others.
      await_chief: seconds that the chief may take to come, for a server that ends when the chief
        does; None where the job ends the server.
      shares_gpu: others of its machine use its GPU too.
      rehearses: it runs the script alone, beside the job, until its step is traced and the job
        takes it in.
      rehearses_call: the number of the training that the job is in then.
      rehearses_traces: what others have traced in it, where it is a loop: see
        engine/trace_ahead.py.
      rehearses_overlap: their sums begin before the backward pass ends.
    """

    task: str = ""
    default_replicas: int = 0
    state_dir: str = ""
    collective_key: str = ""
    await_chief: float | None = None
    shares_gpu: bool = False
    rehearses: bool = False
    rehearses_call: int = 0
    rehearses_traces: Sequence[str] = ()
    rehearses_overlap: bool = False

    @classmethod
    def of(cls, stated: TrainingSettings, **own: Any) -> WorkerSettings:
        """Completes what is stated by what only the agent knows."""
        names = [field.name for field in dataclasses.fields(TrainingSettings)]
        return cls(**{name: getattr(stated, name) for name in names} | own)

    @property
    def state_path(self) -> Path | None:
        """`state_dir` as a path; None when nobody would read what is there."""
        return Path(self.state_dir) if self.state_dir else None

    def variables(self) -> dict[str, str]:
        """The variable that a worker finds them in, and those that its script may read."""
        text = json.dumps(dataclasses.asdict(self))
        found = {VARIABLE: text, RUN_DIR: self.run_dir, STATE_DIR: self.state_dir}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_json(cls, text: str) -> WorkerSettings:
        """The inverse of what stands in the variable."""
        found = restored(json.loads(text))
        found["rehearses_traces"] = tuple(found["rehearses_traces"])
        return cls(**found)


class OwnSettings(TypedDict, total=False):
    """In which settings a worker may differ from the others of its machine."""

    default_replicas: int
    state_dir: str
    ledger: int
    collective_key: str
    await_chief: float
    rehearses: bool
    rehearses_call: int
    rehearses_traces: list[str]
    rehearses_overlap: bool


def restored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of settings as they were before they travelled as JSON."""
    trial = values.get("trial")
    return {
        **values,
        "stated": tuple(values["stated"]),
        "trial": Trial(**trial) if trial else None,
    }


@functools.cache
def settings() -> WorkerSettings:
    """Returns this process's settings; read once, `settings.cache_clear()` forgets them."""
    if text := os.environ.get(VARIABLE):
        return WorkerSettings.from_json(text)
    return WorkerSettings(**from_variables(os.environ))


# Variables that people, or tfrun's own verbs, set for a job, and that no option stands for.
_STATED_BY_VARIABLE = {
    CHIEF_AWAY: ("chief_away", lambda text: _seconds(text, CHIEF_AWAY)),
    "TFRUN_DRILL": ("drill", bool),
    "TFRUN_OWN_ROWS": ("own_rows", lambda text: text != "0"),
    "TFRUN_SHARED_MEMORY": ("shared_memory", lambda text: text != "0"),
    "TFRUN_TRIAL": ("trial", Trial.parse),
}
WITHOUT_OPTION = frozenset(_STATED_BY_VARIABLE)


def from_variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that variables without an option state.

    Raises:
      UsageError: TFRUN-105 where one of them has a bad value.
    """
    return {
        field: read(environment[variable])
        for variable, (field, read) in _STATED_BY_VARIABLE.items()
        if environment.get(variable)
    }


def leave_outer_job(environment: MutableMapping[str, str]) -> None:
    """Removes what makes this process a worker: a job that it starts is a job of its own.

    What its script has set for that job stays.
    """
    if VARIABLE not in environment:
        return
    outer = WorkerSettings.from_json(environment.pop(VARIABLE))
    for name in _OF_THE_JOB:
        environment.pop(name, None)
    for name, value in ((RUN_DIR, outer.run_dir), (STATE_DIR, outer.state_dir)):
        if environment.get(name) == value:
            del environment[name]


def _check(form: re.Pattern[str], text: str, otherwise: str, *, where: str, expected: str) -> None:
    """Raises TFRUN-105 unless the whole text has the form; `otherwise` is what is wrong with it."""
    if not form.fullmatch(text):
        raise UsageError("TFRUN-105", f"{text!r:.60} {otherwise}", where=where, expected=expected)


def _seconds(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        what = f"{text!r:.60} is not a time"
        raise UsageError("TFRUN-105", what, where=where, expected="seconds") from None
