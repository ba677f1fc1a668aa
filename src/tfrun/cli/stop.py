"""`tfrun stop [RUN]`: makes a job save its state and end."""

from __future__ import annotations

import click

from tfrun.cli.find_run import EPILOG, found, not_running, run_argument
from tfrun.cli.params import context


@click.command(context_settings=context("stop"), epilog=EPILOG)
@click.option("--now", is_flag=True, help="End it at once, as Ctrl-C does, without saving.")
@run_argument
def stop(*, run: str | None, now: bool) -> int:
    """Have a job save its state and end, as SIGTERM to it does; its exit code is then 75."""
    folder = found(run)
    from tfrun.observe import ask_job

    try:
        ask_job.ask(folder, "/stop", {"now": now})
    except ask_job.NoAnswer as error:
        raise not_running(folder, error) from None
    print("the job ends now" if now else "the job saves its state and ends")
    return 0
