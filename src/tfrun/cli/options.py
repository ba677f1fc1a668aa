"""The options of `tfrun`: the job that they describe, and what else its start needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import click

from tfrun.checkpoint.when_due import parse as parse_interval
from tfrun.cli import misplaced_options
from tfrun.job.settings import from_variables
from tfrun.job.spec import JobSpec, Program, WorkerRange, seed_or_drawn
from tfrun.job.timeouts import Timeouts

_IN_PLACE = {True: "on", False: "off", None: "auto"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What stands on a command line or in variables; None is what neither says.

    Attributes:
      spec: the job; what only the machines or the run directory tell is not in it yet.
      workers: how many.
      seed: the global random seed; `spec` has another one where none is stated.
      ledger: write down which samples each step consumes.
      tensorboard: the directory for TensorBoard, in which each job has one.
      measured: use what `tfrun bench` has found.
      fresh: begin at the beginning.
      page: print a link to the live page.
      plain: print lines only.
      hosts, hostfile, cluster: which machines; None is this one, or a scheduler's.
      remote_python, remote_dir, env, sync: how things are on other machines.
      tls_cert, tls_key: paths of a certificate and its key.
      misplaced: what to tell of an option among the script's arguments that may be meant for us.
      variables: the names of those that state something for this job, and for none that its script
        starts.
    """

    spec: JobSpec
    workers: WorkerRange | None = None
    seed: int | None = None
    ledger: bool = False
    tensorboard: str | None = None
    measured: bool = True
    fresh: bool = False
    page: bool = False
    plain: bool = False
    hosts: str | None = None
    hostfile: str | None = None
    cluster: str | None = None
    remote_python: str | None = None
    remote_dir: str | None = None
    env: tuple[str, ...] = ()
    sync: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    misplaced: str = ""
    variables: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        context: click.Context,
        told: Mapping[str, Any],
        environment: Mapping[str, str],
        variables: Collection[str],
    ) -> Options:
        """Reads what click has parsed, and the variables that no option stands for.

        Args:
          context: knows what stands on the command line.
          told: the values of the options and of SCRIPT, by the names that Python has for them.
          environment: all variables.
          variables: see the attribute.

        Raises:
          UsageError: TFRUN-103, 105 or 108.
        """

        def named(kind: Any) -> dict[str, Any]:
            names = [field.name for field in dataclasses.fields(kind)]
            return {name: told[name] for name in names if told.get(name) is not None}

        here = click.core.ParameterSource.COMMANDLINE
        stated = [name for name in context.params if context.get_parameter_source(name) is here]
        workers = WorkerRange.parse(told["workers"]) if told["workers"] is not None else None
        timeouts = Timeouts(
            **named(Timeouts),
            start_timeout=min(Timeouts.start_timeout, told["join_timeout"] / 2),
            preempt_grace=told["grace"],
        )
        job = {
            **named(JobSpec),
            **from_variables(environment),
            "program": Program(
                target=told["script"], is_module=told["module"], args=told["script_args"]
            ),
            "workers": workers or WorkerRange(),
            "seed": seed_or_drawn(told["seed"]),
            "in_place": _IN_PLACE[told["in_place"]],
            "ledger": 0,
            "tensorboard": "",
            "stated": tuple(sorted(stated)),
            "timeouts": timeouts,
        }
        if told["checkpoint_every"] != "off":
            parse_interval(told["checkpoint_every"])  # what is malformed is to be known now
        rest = {"spec": JobSpec(**job), "workers": workers, "variables": frozenset(variables)}
        return cls(**{**named(cls), **rest, "misplaced": misplaced_options.found(context)})
