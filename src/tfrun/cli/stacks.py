"""`tfrun stacks [RUN]`: where the workers of a running job stand now."""

from __future__ import annotations

from pathlib import Path

import click

from tfrun.cli.find_run import about_run, asked


@about_run
@click.option(
    "--threads",
    is_flag=True,
    help="Of all threads, not the main one only. That may end a worker, once in 300 times.",
)
def stacks(run_dir: Path, *, threads: bool) -> int:
    """Show where the workers of a running job stand now; equal stacks are folded together."""
    from tfrun.observe.folded_stacks import fold, lines

    answer = asked(run_dir, "/stacks", {"threads": threads}, 15.0)
    print("\n".join(lines(fold(answer["stacks"], threads=threads))).rstrip())
    return 0
