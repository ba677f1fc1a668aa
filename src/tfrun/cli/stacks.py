"""`tfrun stacks [RUN]`: where the workers of a running job stand now."""

from __future__ import annotations

import click

from tfrun.cli.find_run import EPILOG, found, not_running, run_argument
from tfrun.cli.params import context


@click.command(context_settings=context("stacks"), epilog=EPILOG)
@click.option(
    "--threads",
    is_flag=True,
    help="Of all threads, not the main one only. That may end a worker, once in 300 times.",
)
@run_argument
def stacks(*, run: str | None, threads: bool) -> int:
    """Show where the workers of a running job stand now; equal stacks are folded together."""
    folder = found(run)
    from tfrun.observe import ask_job
    from tfrun.observe.folded_stacks import fold, lines

    try:
        answer = ask_job.ask(folder, "/stacks", {"threads": threads}, seconds=15)
    except ask_job.NoAnswer as error:
        raise not_running(folder, error) from None
    print("\n".join(lines(fold(answer["stacks"], threads=threads))).rstrip())
    return 0
