"""`tfrun parity [options] SCRIPT …`: does the script compute the same on any number of workers?"""

from __future__ import annotations

from typing import Any

import click

from tfrun.cli.params import Number, ScriptCommand, Whole, context, numbers_of_workers
from tfrun.cli.shared_options import last_options, new_folder, reporter, say
from tfrun.job import start_checks
from tfrun.job.errors import UsageError
from tfrun.job.spec import Program, seed_or_drawn

EPILOG = (
    "To pass the jobs any other option of tfrun, set its environment variable. Exit code 1: the "
    "runs differ."
)


@click.command(cls=ScriptCommand, context_settings=context("parity", script=True), epilog=EPILOG)
@click.option(
    "-n",
    "--workers",
    metavar="A,B,…",
    default="1,2",
    help="Numbers of workers; the others are compared with the first.",
)
@click.option("--steps", type=Whole(min=1), default=20, help="Training steps in each run.")
@click.option(
    "--tolerance",
    type=Number(min=0),
    default=1e-5,
    help="Largest relative difference of losses that counts as equal; of variables: 100 times it.",
)
@click.option(
    "--replicas",
    type=Whole(min=1),
    envvar="TFRUN_REPLICAS",
    metavar="V",
    help="Divide each batch into V pieces in all runs, and compare all bits.",
)
@click.option(
    "--deterministic", is_flag=True, help="Make TensorFlow compute the same bits every time."
)
@last_options("parity", "run", seeds="all runs")
def parity(
    *,
    script: str,
    script_args: tuple[str, ...],
    workers: str,
    replicas: int | None,
    seed: int | None,
    run_dir: str | None,
    json_file: str | None,
    **rest: Any,
) -> int:
    """Train a script's first steps on 1, 2, … workers, and say where they diverge."""
    program = Program(target=script, args=script_args)
    start_checks.check_program(program)

    worlds = numbers_of_workers(workers, where="-n", least=2)
    if replicas and replicas < (most := max(worlds)):
        raise UsageError(
            "TFRUN-107",
            f"--replicas {replicas} leaves some of {most} workers without a piece of a batch",
            where="--replicas",
            fix=f"Use at least {most}, or fewer workers",
        )
    start_checks.check_tensorflow()

    from tfrun.tools.parity.report import print_report
    from tfrun.tools.parity.run import Parity, run_parity

    seed = seed_or_drawn(seed)
    show = reporter(json_file, print_report)
    folder = new_folder(run_dir, "parity", program)
    say(f"{', '.join(map(str, worlds))} workers, seed {seed}, run directory {folder}")
    report = run_parity(
        Parity(
            program=(script, *script_args),
            worlds=worlds,
            replicas=replicas,
            seed=seed,
            folder=folder,
            **rest,
        ),
        say,
    )
    show(report)
    return 0 if report.equal else 1
