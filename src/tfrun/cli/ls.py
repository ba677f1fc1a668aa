"""`tfrun ls`: the runs of this directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tfrun.cli.find_run import RUNS, tell_damage
from tfrun.cli.params import context
from tfrun.job import run_dir
from tfrun.job.errors import UsageError

MOST = 50


@click.command(context_settings=context("ls"))
@click.argument("folder", metavar="[DIR]", default=str(RUNS))
def ls(*, folder: str) -> int:
    """List the runs in a directory, by default tfrun-runs, the newest first."""
    from rich.console import Console
    from rich.table import Table

    from tfrun.observe import ask_job
    from tfrun.observe.status_board import duration

    if folder != str(RUNS) and not Path(folder).is_dir():
        what = f"{folder!r:.200} is not a directory"
        raise UsageError("TFRUN-109", what, expected="a directory with runs")
    runs = run_dir.runs(Path(folder))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("run", "state", "began", "for", "workers", "step"):
        table.add_column(name, no_wrap=True)
    for run in runs[:MOST]:
        tell_damage(run, f"{run.name}: ")
        now = ask_job.status(run)
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(now["started"] or 0))
        took = duration(max(0, now["seconds"])) if now["ended"] or now["live"] else ""
        step = f"{now['training']['step']:,}" if now["training"] else ""
        table.add_row(run.name, now["state"], began, took, str(len(now["tasks"])), step)
    Console(highlight=False, soft_wrap=True).print(table if runs else f"no runs in {folder}")
    return 0
