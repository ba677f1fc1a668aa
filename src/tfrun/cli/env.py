"""`tfrun env`: what a bug report needs."""

from __future__ import annotations

import json

import click

from tfrun.cli.params import context


@click.command(context_settings=context("env"))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def env(*, as_json: bool) -> int:
    """Print what a bug report needs: versions, machine, GPUs, variables.

    Secrets are hidden, and your home directory is written as ~. Nothing is sent anywhere.
    """
    from tfrun.tools.env import report

    found = report.collect()
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(report.lines(found)))
    return 0
