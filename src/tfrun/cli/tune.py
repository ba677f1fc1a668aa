"""`tfrun tune [options] SCRIPT …`: the per-worker batch that is fastest and fits in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfrun.cli.params import FILE, Number, ScriptCommand, Whole, context, numbers_of_workers
from tfrun.cli.shared_options import last_options, new_folder, reporter, say
from tfrun.job import start_checks
from tfrun.job.spec import Program, seed_or_drawn
from tfrun.tools import picture

EPILOG = "To pass the jobs any other option of tfrun, set its environment variable."
GB = 10**9


@click.command(cls=ScriptCommand, context_settings=context("tune", script=True), epilog=EPILOG)
@click.option(
    "-n",
    "--workers",
    type=Whole(min=1),
    default=1,
    metavar="N",
    help="On how many workers to try each batch.",
)
@click.option("--start", type=Whole(min=1), default=8, help="The first batch of a worker.")
@click.option("--most", type=Whole(min=1), default=65536, help="The largest one.")
@click.option(
    "--steps", type=Whole(min=1), default=10, help="Steps that are timed with each batch."
)
@click.option(
    "--memory-limit",
    type=Number(min=0, min_open=True),
    metavar="GB",
    help="How much memory a worker may use.  [default: all that there is]",
)
@click.option(
    "--for",
    "worlds",
    metavar="A,B,…",
    default="1,2,4,8",
    help="Numbers of workers to print batch and learning rate for.",
)
@click.option(
    "--plot", **FILE, help="Where to draw the curve, as PNG.  [default: <run-dir>/tune.png]"
)
@last_options("tune", "job", seeds="all jobs")
def tune(
    *,
    script: str,
    script_args: tuple[str, ...],
    memory_limit: float | None,
    worlds: str,
    plot: str | None,
    seed: int | None,
    run_dir: str | None,
    json_file: str | None,
    **rest: Any,
) -> int:
    """Try batches in short jobs, and say which one is fastest and fits in memory."""
    program = Program(target=script, args=script_args)
    start_checks.check_program(program)

    sizes = numbers_of_workers(worlds, where="--for")
    picture.check(plot)
    start_checks.check_tensorflow()

    from tfrun.tools.tune.report import draw, print_report
    from tfrun.tools.tune.run import Tune, run_tune

    show = reporter(json_file, print_report)
    folder = new_folder(run_dir, "tune", program)
    say(f"run directory {folder}")
    report = run_tune(
        Tune(
            program=(script, *script_args),
            memory=int((memory_limit or 0) * GB),
            worlds=sizes,
            seed=seed_or_drawn(seed),
            folder=folder,
            **rest,
        ),
        say,
    )
    show(report)
    path = Path(plot) if plot is not None else folder / "tune.png"
    say(picture.drawn(path, lambda fig: draw(fig, report, program.name)))
    return 0
