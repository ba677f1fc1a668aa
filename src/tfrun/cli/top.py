"""`tfrun top [RUN]`: watches a job until it ends."""

from __future__ import annotations

import time

import click

from tfrun.cli.runs import EPILOG, context, found, run_argument

SECONDS = 1.0


@click.command(context_settings=context("top"), epilog=EPILOG)
@run_argument
def top(*, run: str | None) -> int:
    """Watch a job until it ends; Ctrl-C ends the watching, not the job."""
    folder = found(run)
    from rich.console import Console
    from rich.live import Live

    from tfrun.observe import asking
    from tfrun.observe.board import board, goodput_line

    console = Console(highlight=False)
    now = asking.status(folder)
    try:
        with Live(board(now, events=5), console=console, auto_refresh=False) as live:
            while now["ended"] is None and now["state"] != "lost":
                time.sleep(SECONDS)
                now = asking.status(folder)
                live.update(board(now, events=5), refresh=True)
    except KeyboardInterrupt:
        return 0
    console.print(goodput_line(now["goodput"]))
    return 0
