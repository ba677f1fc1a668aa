"""A job's specification: the program, how many workers, with which settings."""

from __future__ import annotations

import dataclasses
import os
import random
import re
from dataclasses import dataclass, field
from typing import Any

from tfrun.job.errors import UsageError
from tfrun.job.settings import TrainingSettings, restored
from tfrun.job.timeouts import Timeouts

STRATEGIES = ("auto", "script")
COMMUNICATIONS = ("auto", "host", "ring", "nccl")
COMPRESSIONS = ("off", "bf16", "fp16")
BALANCES = ("off", "auto")
OVERLAPS = ("auto", "on", "off")
START_METHODS = ("auto", "fork", "fresh")
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
class JobSpec(TrainingSettings):
    """A whole job, as the command line states it. Travels to the agents as JSON.

    Attributes:
      program: what each training task runs.
      workers: how many workers.
      ps: how many parameter servers; with them a chief is added that runs the script.
      evaluator: a process more evaluates each checkpoint.
      spares: how many successors are kept ready from the start.
      threads_per_worker: intra-op threads of each worker; None shares the cores out.
      start_method: "fork" from the zygote, "fresh" processes, or "auto" for the platform's.
      scale_batch: multiply a script's batch by the number of workers: see `batch_times`.
      strict: what is probably not meant (see doubts.py) fails the job.
      log_all: show every worker's output on the terminal, not only the chief's.
      timeouts: all waiting times, in seconds.
    """

    program: Program
    workers: WorkerRange = field(default_factory=WorkerRange)
    ps: int = 0
    evaluator: bool = False
    spares: int = 0
    threads_per_worker: int | None = None
    start_method: str = "auto"
    scale_batch: bool = False
    strict: bool = False
    log_all: bool = False
    timeouts: Timeouts = field(default_factory=Timeouts)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> JobSpec:
        program = dict(values["program"])
        program["args"] = tuple(program["args"])
        return cls(
            **{
                **restored(values),
                "program": Program(**program),
                "workers": WorkerRange(**values["workers"]),
                "timeouts": Timeouts(**values["timeouts"]),
            }
        )


def seed_or_drawn(stated: int | None) -> int:
    """Returns the global random seed: the stated one, or any, which can be said and used again."""
    return random.SystemRandom().randrange(2**31) if stated is None else stated
