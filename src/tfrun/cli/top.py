"""`tfrun top [RUN]`: watches a job until it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrun.cli.find_run import about_run, with_log

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = 1.0
EVENTS = 5


@about_run
def top(run_dir: Path) -> int:
    """Watch a job until it ends; Ctrl-C ends the watching, not the job."""
    from rich.console import Console
    from rich.live import Live

    from tfrun.observe import ask_job
    from tfrun.observe.status_board import board, goodput_line

    console = Console(highlight=False)

    def is_over(status: Mapping[str, Any]) -> bool:
        return status["ended"] is not None or status["state"] == "lost"

    def shown(status: Mapping[str, Any]) -> RenderableType:
        cuts = console.is_terminal and not is_over(status)  # the last one is in full
        high = console.height - 1 if cuts else None
        return board(with_log(status, run_dir), events=EVENTS, height=high)

    now = ask_job.status(run_dir)
    try:
        with Live(shown(now), console=console, auto_refresh=False) as live:
            while not is_over(now):
                time.sleep(SECONDS)
                now = ask_job.status(run_dir)
                live.update(shown(now), refresh=True)
    except KeyboardInterrupt:
        return 0
    console.print(goodput_line(now["goodput"]))
    return 0
