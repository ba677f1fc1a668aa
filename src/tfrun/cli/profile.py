"""`tfrun profile [RUN] --steps N`: traces of the same steps of all workers, for TensorBoard."""

from __future__ import annotations

import time

import click

from tfrun.cli.find_run import EPILOG, found, not_running, run_argument
from tfrun.cli.params import SECONDS, context
from tfrun.job.profile_request import MOST_STEPS

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 0.2


@click.command(context_settings=context("profile"), epilog=EPILOG)
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), default=20, help="How many steps to trace."
)
@click.option("--dir", "folder", metavar="DIR", help="Where to.  [default: RUN/profile]")
@click.option("--timeout", **SECONDS, default=300.0, help="How long to wait for the traces.")
@run_argument
def profile(*, run: str | None, steps: int, folder: str | None, timeout: float) -> int:
    """Trace the same steps of all workers of a running job, for TensorBoard's profiler.

    The machines write where they see DIR. Exit code 1: a worker has written none.
    """
    run_dir = found(run)
    from pathlib import Path

    from tfrun.observe import ask_job, event_file
    from tfrun.observe.profiles import Answers

    events = run_dir / "events.jsonl"
    offset = event_file.end(events)
    where = str(Path(folder).resolve() if folder else run_dir / "profile")
    try:
        asked = ask_job.ask(
            run_dir, "/profile", {"steps": steps, "folder": where}, seconds=ANSWER_SECONDS
        )
    except ask_job.NoAnswer as error:
        raise not_running(run_dir, error) from None
    if "problem" in asked:
        click.echo(f"tfrun: {asked['problem']}", err=True)
        return 1
    answers, deadline = Answers(asked["name"], asked["tasks"]), time.monotonic() + timeout
    while not answers.are_complete and time.monotonic() < deadline:
        look = event_file.look(events, offset)
        offset = look.offset
        answers.take(look.lines)
        if not look.more:
            time.sleep(LOOK_SECONDS)
    for line in answers.lines():
        click.echo(line)
    click.echo(f"tensorboard --logdir {where}")
    return 0 if answers.are_good else 1
