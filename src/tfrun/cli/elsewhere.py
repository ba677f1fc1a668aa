"""What `tfrun` will be told in a queue or a pod: refused here, before anybody waits for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import click

from tfrun.checkpoint.policy import parse as parse_interval
from tfrun.cli.experiment import say
from tfrun.cli.main import VERBS, run
from tfrun.cli.variables import PREFIX, unknown
from tfrun.job import checks, effects
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec, Program, WorkerRange, seed_or_drawn
from tfrun.job.timeouts import Timeouts


def check(args: Sequence[str], environment: Mapping[str, str], *, external: str = "") -> None:
    """Refuses what `tfrun args…` would refuse in that environment, whatever the machine.

    Args:
      args: its command line.
      environment: its variables.
      external: who states its cluster; "" is tfrun.

    Raises:
      UsageError: as `tfrun` does; TFRUN-105 for an option or a variable with a bad value.
    """
    for text in unknown(environment, run, VERBS):
        say(text)
    values: dict[str, object] = {}
    for param in run.params:
        value = environment.get(f"{PREFIX}{str(param.name).upper()}")
        if value and isinstance(param, click.Option) and param.expose_value:
            values[str(param.name)] = value.split() if param.multiple else value
    try:
        context = run.make_context("tfrun", [*args], default_map=values, auto_envvar_prefix=None)
    except click.ClickException as error:
        what = " ".join(error.format_message().split()).rstrip(".")
        raise UsageError("TFRUN-105", what, where="what the job is told") from None
    told = context.params
    stated = [n for n in told if context.get_parameter_source(n) is _COMMAND_LINE]
    if told["checkpoint_every"] != "off":
        parse_interval(told["checkpoint_every"])
    checks.check_roles(
        ps=told["ps"],
        max_staleness=told["max_staleness"],
        evaluator=told["evaluator"],
        external=external,
        saves=told["checkpoint_every"] != "off",
    )
    checks.check_compression(told["compress"], communication=told["communication"], ps=told["ps"])
    alike = {field.name for field in dataclasses.fields(JobSpec)} & told.keys()
    times = {field.name for field in dataclasses.fields(Timeouts)} & told.keys()
    job = JobSpec(
        **{
            **{name: told[name] for name in alike},
            "program": Program(target=told["script"], is_module=told["module"]),
            "workers": WorkerRange.parse(told["workers"] or "1"),
            "seed": seed_or_drawn(told["seed"]),
            "timeouts": Timeouts(
                **{name: told[name] for name in times}, preempt_grace=told["grace"]
            ),
            "stated": tuple(stated),
        }
    )
    effects.check(job, elsewhere=not external, restarts=not external)


_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE
