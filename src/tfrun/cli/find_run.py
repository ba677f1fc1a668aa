"""Finds the run that a command is about: by its directory or name; by default the newest."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrun.cli.params import context, directories
from tfrun.job import run_dir
from tfrun.job.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

RUNS = Path("tfrun-runs")
EPILOG = "RUN is a run directory, or its name in tfrun-runs; by default the newest one there."


def named_so(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """What a shell may complete as a run: the names in tfrun-runs, or another directory."""
    from click.shell_completion import CompletionItem

    runs = run_dir.runs(RUNS) if RUNS.is_dir() else []
    names = [CompletionItem(run.name) for run in runs if run.name.startswith(begun)]
    return names or directories(ctx, param, begun)  # of both, bash would only take the second


RUN: dict[str, Any] = {"metavar": "[RUN]", "required": False, "shell_complete": named_so}


def about_run(verb: Callable[..., int]) -> click.Command:
    """Makes a command of a function that gets, before its options, the directory that RUN names."""

    @functools.wraps(verb)
    def on_run(run: str | None, **options: Any) -> int:
        return verb(found(run), **options)

    stated = click.argument("run", **RUN)(on_run)
    return click.command(context_settings=context(verb.__name__), epilog=EPILOG)(stated)


def found(run: str | None) -> Path:
    """Returns the absolute path of the run directory that a person has named, or of the newest.

    Raises:
      UsageError: TFRUN-109 when there is none.
    """
    if run is None:
        newest = run_dir.newest(RUNS)
        if newest is None:
            raise UsageError(
                "TFRUN-109",
                "there is no run in tfrun-runs here",
                fix="Name a run directory, or go to where the job was started",
            )
        tell_damage(newest)
        return newest.resolve()
    for folder in (Path(run), RUNS / run):
        if (folder / "job.json").is_file() or (folder / "events.jsonl").is_file():
            tell_damage(folder)
            return folder.resolve()
    raise UsageError(
        "TFRUN-109",
        f"{run!r:.200} is not a run directory",
        expected="a directory with a job.json, or its name in tfrun-runs",
        fix="tfrun ls shows the runs here",
    )


def with_log(status: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Returns a job's status with the log of its failure as a path that is there from here."""
    if not (failure := status.get("failure")):
        return status
    log = folder / failure["log"]
    shown = log if log.exists() else folder / "logs"
    with contextlib.suppress(OSError, ValueError):
        shown = shown.relative_to(Path.cwd())
    return {**status, "failure": {**failure, "log": str(shown)}}


def tell_damage(folder: Path, which: str = "") -> None:
    """Names, on standard error, the files of a run directory that cannot be read."""
    from tfrun.observe.damaged_files import damaged

    for text in damaged(folder):
        click.echo(f"tfrun: WARNING {which}{text}", err=True)
