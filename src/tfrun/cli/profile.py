"""`tfrun profile [RUN] --steps N`: traces of the same steps of all workers, for TensorBoard."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tfrun.cli.find_run import about_run, asked
from tfrun.cli.params import SECONDS
from tfrun.job.profile_request import MOST_STEPS

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 0.2


@about_run
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), default=20, help="How many steps to trace."
)
@click.option("--dir", "folder", metavar="DIR", help="Where to.  [default: RUN/profile]")
@click.option("--timeout", **SECONDS, default=300.0, help="How long to wait for the traces.")
def profile(run_dir: Path, *, steps: int, folder: str | None, timeout: float) -> int:
    """Trace the same steps of all workers of a running job, for TensorBoard's profiler.

    The machines write where they see DIR. Exit code 1: a worker has written none.
    """
    from tfrun.observe.events import end_of_lines, new_lines
    from tfrun.observe.profiles import Answers

    events = run_dir / "events.jsonl"
    offset = end_of_lines(events)
    where = str(Path(folder).resolve() if folder else run_dir / "profile")
    request = asked(run_dir, "/profile", {"steps": steps, "folder": where}, ANSWER_SECONDS)
    if "problem" in request:
        click.echo(f"tfrun: {request['problem']}", err=True)
        return 1
    answers, deadline = Answers(request["name"], request["tasks"]), time.monotonic() + timeout
    while not answers.are_complete and time.monotonic() < deadline:
        look = new_lines(events, offset)
        offset = look.offset
        answers.take(look.lines)
        if not look.more:
            time.sleep(LOOK_SECONDS)
    for line in answers.lines():
        click.echo(line)
    click.echo(f"tensorboard --logdir {where}")
    return 0 if answers.are_good else 1
