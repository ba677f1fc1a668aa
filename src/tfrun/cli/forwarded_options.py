"""Checks the options that `tfrun` will get in a queue or a pod, before anybody waits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from tfrun.cli.job_variables import PREFIX, unknown
from tfrun.cli.main import VERBS, options_of, run
from tfrun.cli.shared_options import say
from tfrun.job import options_without_effect
from tfrun.job.errors import UsageError


def check(args: Sequence[str], environment: Mapping[str, str], *, external: str = "") -> None:
    """Refuses what `tfrun args…` would refuse in that environment, whatever the machine.

    `external` says who states its cluster; "" is tfrun.

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
        raise UsageError("TFRUN-105", what, where="the options of the job") from None
    job = options_of(context, context.params, environment).spec
    fixed = context.params["cluster"] is not None
    options_without_effect.check(job, elsewhere=not external, external=bool(external), fixed=fixed)
