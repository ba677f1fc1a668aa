"""`tfrun status [RUN]`: how far a job is, or how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tfrun.cli.find_run import about_run, with_log


@about_run
@click.option(
    "--json", "as_json", is_flag=True, envvar="TFRUN_STATUS_JSON", help="Print it as JSON."
)
def status(run_dir: Path, *, as_json: bool) -> int:
    """Show how far a job is, or how it ended."""
    from rich.console import Console

    from tfrun.observe import ask_job
    from tfrun.observe.status_board import board, goodput_line

    now = ask_job.status(run_dir)
    if as_json:
        print(json.dumps(now, indent=2))
        return 0
    console = Console(highlight=False, soft_wrap=True)
    console.print(board(with_log(now, run_dir), events=5))
    if now["goodput"]["seconds"]:
        console.print(goodput_line(now["goodput"]))
    return 0
