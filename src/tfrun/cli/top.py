"""`tfrun top [RUN]`: watches a job until it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tfrun.cli.find_run import EPILOG, found, run_argument, with_log
from tfrun.cli.params import context

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = 1.0
EVENTS = 5


@click.command(context_settings=context("top"), epilog=EPILOG)
@run_argument
def top(*, run: str | None) -> int:
    """Watch a job until it ends; Ctrl-C ends the watching, not the job."""
    folder = found(run)
    from rich.console import Console
    from rich.live import Live

    from tfrun.observe import ask_job
    from tfrun.observe.status_board import board, goodput_line

    console = Console(highlight=False)

    def shown(status: Mapping[str, Any]) -> RenderableType:
        high = console.height - 1 if console.is_terminal else None
        return board(with_log(status, folder), events=EVENTS, height=high)

    now = ask_job.status(folder)
    try:
        with Live(shown(now), console=console, auto_refresh=False) as live:
            while now["ended"] is None and now["state"] != "lost":
                time.sleep(SECONDS)
                now = ask_job.status(folder)
                if now["ended"] is None:
                    live.update(shown(now), refresh=True)
            live.update(
                board(with_log(now, folder), events=EVENTS), refresh=True
            )  # the last one is in full
    except KeyboardInterrupt:
        return 0
    console.print(goodput_line(now["goodput"]))
    return 0
