"""`tfrun stop [RUN]`: makes a job save its state and end."""

from __future__ import annotations

from pathlib import Path

import click

from tfrun.cli.find_run import about_run
from tfrun.observe.ask_job import ask


@about_run
@click.option("--now", is_flag=True, help="End it at once, as Ctrl-C does, without saving.")
def stop(run_dir: Path, *, now: bool) -> int:
    """Make a job save its state and end, as SIGTERM to it does; its exit code is then 75."""
    ask(run_dir, "/stop", {"now": now})
    print("the job ends now" if now else "the job saves its state and ends")
    return 0
