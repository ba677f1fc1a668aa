"""What to run: the program, how many workers, with which settings."""

from __future__ import annotations

import dataclasses
import os
import random
import re
from dataclasses import dataclass, field
from typing import Any

from tfrun.job.errors import UsageError
from tfrun.job.timeouts import Timeouts

COMMUNICATIONS = ("auto", "host", "ring", "nccl")
COMPRESSIONS = ("off", "bf16", "fp16")
OVERLAPS = ("auto", "on", "off")
START_METHODS = ("auto", "fork", "fresh")
# No more digits than any training needs: int() refuses some thousands. And not "0s".
_SNAPSHOT_EVERY = re.compile(r"auto|[0-9]{1,9}|(?=.*[1-9])[0-9]{1,9}(\.[0-9]{1,9})?s")
_STEPS_PER_EXECUTION = re.compile(r"script|auto|[1-9][0-9]{0,4}")
MAX_WORKERS = 65535  # each worker needs a port, and more is a slip of the finger
MAX_HERE = 1024  # processes on one machine: with many more, its agent is too busy to answer
MAX_THREADS = 1024  # of a worker: TensorFlow starts them all, and crashes where it cannot


@dataclass(frozen=True, kw_only=True)
class WorkerRange:
    """How many workers: at least `low`, at most `high`; the same number when not elastic."""

    low: int = 1
    high: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MAX_WORKERS:
            raise _not_a_number_of_workers(str(self))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"

    @classmethod
    def parse(cls, text: str) -> WorkerRange:
        """Reads "4" or "2:8"."""
        # Nine digits at most: int() refuses some thousands with an error of its own. str.isdigit
        # and int() also take digits of other scripts; a typo is likelier than those.
        match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text)
        if match is None:
            raise _not_a_number_of_workers(f"{text!r:.60}")
        low, high = match.group(1), match.group(2) or match.group(1)
        return cls(low=int(low), high=int(high))


def _not_a_number_of_workers(shown: str) -> UsageError:
    return UsageError(
        "TFRUN-103",
        f"{shown} is not a number of workers",
        where="-n",
        expected=f"N, or MIN:MAX with 1 <= MIN <= MAX <= {MAX_WORKERS}",
    )


@dataclass(frozen=True, kw_only=True)
class Program:
    """The user's script or module, as `python target args…` or `python -m target args…`."""

    target: str
    is_module: bool = False
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A short name for the job, from the script's file name or the module's last part."""
        if self.is_module:
            return self.target.rpartition(".")[2]
        return os.path.splitext(os.path.basename(self.target))[0]  # noqa: PTH119, PTH122

    @property
    def file(self) -> str | None:
        """The script's file; None for a module, which may be anywhere."""
        return None if self.is_module else self.target


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A whole job, as the command line states it. Travels to the agents as JSON.

    Attributes:
      program: what each training task runs.
      workers: how many workers.
      ps: how many parameter servers; with them a chief is added that runs the script.
      max_staleness: with parameter servers, how many updates late a gradient may be applied; None
        is any number.
      evaluator: a process more evaluates each checkpoint.
      run_dir: absolute path of the directory that receives everything the job writes.
      communication: "auto", "host", "ring" or "nccl".
      compress: as what gradients travel: "off" (as they are), "bf16" or "fp16".
      overlap: whether the host collective begins to sum before the backward pass ends: "on",
        "off", or "auto": between machines, for workers of several threads.
      preferred: what "auto" is for workers without GPUs, "host" or "ring"; "" is tfrun's choice.
      small_bytes: sums up to so many bytes go by recursive doubling in the host collective; None is
        its own choice.
      pack_bytes: of what TensorFlow's ring sends as one; None is tfrun's choice.
      threads_per_worker: intra-op threads of each worker; None shares the cores out.
      start_method: "fork" from the zygote, "fresh" processes, or "auto" for the platform's.
      seed: the global random seed that every worker starts with.
      sync_check: compare all variables between workers every this many steps; 0 is never.
      strict: what is probably not meant (see doubts.py) fails the job.
      deterministic: have TensorFlow compute the same bits each time.
      max_restarts: how many new rounds in a row may follow failures without progress.
      snapshot_every: how often workers write a snapshot without a failure: "100" (steps),
        "30s" (seconds), "0" (never) or "auto".
      steps_per_execution: how many steps of `fit` go into one call of TensorFlow: "script" (what it
        says), "auto" or a number.
      checkpoint_dir: absolute path of the directory for checkpoints; "" is none.
      checkpoint_every: how often one is written: "500" (steps), "600s", "10m", "epoch".
      keep: how many checkpoints are kept.
      ledger: number of the job in its run directory's ledger, from 1; 0 writes none.
      tensorboard: absolute path of the folder that Keras writes its logs for TensorBoard into; ""
        is none.
      log_all: show every worker's output on the terminal, not only the chief's.
      stated: the options that stand on the command line, by the names that Python has for them.
      timeouts: all waiting times, in seconds.
    """

    program: Program
    workers: WorkerRange = field(default_factory=WorkerRange)
    ps: int = 0
    max_staleness: int | None = None
    evaluator: bool = False
    run_dir: str
    communication: str = "auto"
    compress: str = "off"
    overlap: str = "auto"
    preferred: str = ""
    small_bytes: int | None = None
    pack_bytes: int | None = None
    threads_per_worker: int | None = None
    start_method: str = "auto"
    seed: int = 0
    sync_check: int = 0
    strict: bool = False
    deterministic: bool = False
    max_restarts: int = 3
    snapshot_every: str = "auto"
    steps_per_execution: str = "script"
    checkpoint_dir: str = ""
    checkpoint_every: str = "10m"
    keep: int = 5
    ledger: int = 0
    tensorboard: str = ""
    log_all: bool = False
    stated: tuple[str, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)

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

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> JobSpec:
        program = dict(values["program"])
        program["args"] = tuple(program["args"])
        return cls(
            **{
                **values,
                "program": Program(**program),
                "workers": WorkerRange(**values["workers"]),
                "stated": tuple(values["stated"]),
                "timeouts": Timeouts(**values["timeouts"]),
            }
        )


def _check(form: re.Pattern[str], text: str, otherwise: str, *, where: str, expected: str) -> None:
    """Raises TFRUN-105 unless the whole text has the form; `otherwise` is what is wrong with it."""
    if not form.fullmatch(text):
        raise UsageError("TFRUN-105", f"{text!r:.60} {otherwise}", where=where, expected=expected)


def seed_or_drawn(stated: int | None) -> int:
    """Returns the global random seed: the stated one, or any, which can be said and used again."""
    return random.SystemRandom().randrange(2**31) if stated is None else stated
