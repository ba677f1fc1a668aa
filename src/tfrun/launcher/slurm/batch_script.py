"""The batch script of `tfrun submit slurm`: a pure function."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfrun.job.errors import UsageError
from tfrun.job.spec import WorkerRange

GRACE_MARGIN = 20  # seconds of the grace period that are not for saving: the notice, and leaving


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is asked of Slurm.

    Attributes:
      name: the job's name.
      nodes: how many nodes.
      workers: how many workers in all; None is one a node.
      directory: the working directory.
      output: the file for what the job prints.
      grace: seconds before its end at which the job is told of it.
      asked: other options of sbatch, as "--partition=gpu".
      setup: lines of shell that come first.
    """

    name: str
    nodes: int
    workers: WorkerRange | None
    directory: str
    output: str
    grace: int
    asked: Sequence[str] = ()
    setup: Sequence[str] = ()


# The likeliest slips only: sbatch knows better, but perhaps on another machine, and later.
_FORMS = {
    "--time": (r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", "2:00:00 or 1-12"),
    "--mem": (r"\d+[KMGTP]?B?", "64G"),
    "--cpus-per-task": (r"[1-9]\d{0,5}", "8"),
    "--gpus-per-node": (r"([^\s:,]+:)?\d+(,[^\s:,]+:\d+)*", "4 or a100:4"),
    "--partition": (r"[^\s,]+(,[^\s,]+)*", "gpu"),
    "--account": (r"\S+", "physics"),
}


def check_options(asked: Mapping[str, str | None]) -> None:
    """Refuses what Slurm could not read.

    Args:
      asked: options of sbatch, and their values; None is not given.

    Raises:
      UsageError: TFRUN-105.
    """
    for option, value in asked.items():
        form, example = _FORMS[option]
        if value is not None and not re.fullmatch(form, value, re.ASCII | re.IGNORECASE):
            what = f"{value!r:.60} is not what Slurm reads there"
            raise UsageError("TFRUN-105", what, where=option, expected=f"such as {example}")


def batch_script(what: Submission, command: Sequence[str]) -> str:
    """Returns the script.

    Args:
      what: what is asked of Slurm.
      command: tfrun with its arguments.

    Raises:
      UsageError: TFRUN-105 when a value has a line break, which ends a line of #SBATCH.
    """
    options = [
        f"--job-name={what.name}",
        f"--nodes={what.nodes}",
        f"--chdir={what.directory}",
        "--output=" + what.output.replace("%", "%%"),  # Slurm makes the job's number of %j
        "--open-mode=append",  # a requeued job writes on
        "--requeue",
        f"--signal=B:TERM@{what.grace}",
    ]
    if what.workers:
        each = -(-what.workers.high // what.nodes)
        options.append(f"--ntasks-per-node={each}")
        if what.workers.low < what.workers.high:
            options.append("--no-kill")  # the job goes on without a node
    options += what.asked
    for option in options:
        if "\n" in option or "\r" in option or not option.startswith("-"):
            raise UsageError(
                "TFRUN-105",
                f"{option!r:.100} is not an option of sbatch",
                expected='options like "--partition=gpu", without line breaks',
            )
    lines = ["#!/bin/bash", *(f"#SBATCH {_quoted(option)}" for option in options), "", *what.setup]
    # exec: Slurm's signal reaches tfrun, which bash would not pass on.
    return "\n".join([*lines, f"exec {shlex.join(command)}", ""])


def _quoted(option: str) -> str:
    name, equals, value = option.partition("=")
    return f"{name}{equals}{shlex.quote(value)}" if equals else option
