"""What the verbs that run a script several times share: options, a directory, JSON, messages."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tfrun.cli.params import DIRECTORY, FILE, SECONDS, Whole, files
from tfrun.job import run_dir as run_dir_module
from tfrun.job.errors import UsageError
from tfrun.job.spec import Program


def last_options(
    verb: str, one: str, *, seeds: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the options with which these verbs end, and the script.

    Args:
      verb: the verb's name.
      one: what it calls one of its runs.
      seeds: what --seed is for.
    """
    options = (
        click.option(
            "--seed",
            type=Whole(min=0, max=2**31 - 1),
            help=f"Seed of {seeds}.  [default: a new one each time]",
        ),
        click.option("--timeout", **SECONDS, default=600.0, help=f"How long each {one} may take."),
        click.option(
            "--run-dir",
            **DIRECTORY,
            help=f"Where the {one}s write.  [default: tfrun-runs/{verb}-<script>]",
        ),
        click.option("--json", "json_file", **FILE, help="Write the report there too."),
        click.argument("script", metavar="SCRIPT", shell_complete=files),
        click.argument(
            "script_args",
            nargs=-1,
            type=click.UNPROCESSED,
            metavar="[ARGS]...",
            shell_complete=files,
        ),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def new_folder(stated: str | None, verb: str, program: Program | None = None) -> Path:
    """Makes the directory in which the runs write, and returns its absolute path.

    Raises:
      UsageError: TFRUN-104 where it cannot be made, TFRUN-105 where runs have written there: a
        job that is started in the directory of another goes on where that one was.
    """
    name = f"{verb}-{program.name}" if program else verb
    folder = run_dir_module.create(stated, name, time.time())
    if any(path.is_dir() and path.name != "logs" for path in folder.iterdir()):
        raise UsageError(
            "TFRUN-105",
            f"{str(folder)!r} holds an earlier {verb}",
            where="--run-dir",
            fix="Name another directory, or remove it",
        )
    return folder


def reporter(path: str | None, print_report: Callable[[Any, Any], None]) -> Callable[[Any], None]:
    """Returns what shows a report to a person, and writes it as JSON where that is asked for.

    An empty file is written at once: that it cannot be is not to be found out after minutes.

    Raises:
      UsageError: TFRUN-105 where it cannot be written.
    """

    def write(text: str) -> None:
        if path is None:
            return
        try:
            Path(path).write_text(text)
        except OSError as error:
            raise UsageError(
                "TFRUN-105", f"{path!r} cannot be written: {error.strerror}", where="--json"
            ) from None

    def show(report: Any) -> None:
        from rich.console import Console

        print_report(report, Console(soft_wrap=True))
        write(json.dumps(report.to_json(), indent=2) + "\n")

    write("")
    return show


def say(text: str) -> None:
    """Shows a line of tfrun's own."""
    print(f"tfrun: {text}", file=sys.stderr, flush=True)
