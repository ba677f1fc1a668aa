"""`tfrun drill [options] SCRIPT …`: what becomes of a script's training when workers die."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import click

from tfrun.drill.faults import parse_faults
from tfrun.job import checks
from tfrun.job import run_dir as run_dir_module
from tfrun.job.errors import UsageError
from tfrun.job.spec import Program, WorkerRange

CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "TFRUN_DRILL",
    "allow_interspersed_args": False,
}
EPILOG = (
    "The faults are kill (a worker that is not the chief), chief, two (at once), stop (SIGSTOP), "
    "all, and random (--kills workers, one after the other). Every other option of tfrun goes to "
    "the jobs by its environment variable. Exit code 1: a promise was broken."
)


@click.command(context_settings=CONTEXT, epilog=EPILOG)
@click.option(
    "-n", "--workers", metavar="N", default="2", show_default=True, help="Number of workers."
)
@click.option(
    "--faults", metavar="A,B,…", help="Which faults.  [default: kill,chief,two,stop, as N allows]"
)
@click.option(
    "--kills",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How often the fault `random` comes.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**31 - 1),
    help="Of the jobs, of the moments and of the victims.  [default: another each time]",
)
@click.option("--deterministic", is_flag=True, help="Have TensorFlow compute the same bits.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="A first new step that is later breaks a promise.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long each run may take.",
)
@click.option(
    "--run-dir", metavar="DIR", help="Where the runs write.  [default: tfrun-runs/drill-<script>]"
)
@click.option("--json", "json_file", metavar="FILE", help="Write the report there too.")
@click.argument("script", metavar="SCRIPT")
@click.argument("script_args", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def drill(
    *,
    script: str,
    script_args: tuple[str, ...],
    workers: str,
    faults: str | None,
    kills: int,
    seed: int | None,
    deterministic: bool,
    limit: float | None,
    timeout: float,
    run_dir: str | None,
    json_file: str | None,
) -> int:
    """Run a script undisturbed, then under faults, and compare."""
    program = Program(target=script, args=script_args)
    many = WorkerRange.parse(workers).high
    chosen = parse_faults(faults, many)
    checks.check_program(program)
    checks.check_tensorflow()

    from rich.console import Console

    from tfrun.drill.drill import Drill, run_drill
    from tfrun.drill.report import print_report

    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    if json_file is not None:
        _write(Path(json_file), "")  # now rather than after minutes
    folder = _folder(run_dir, program)
    _say(f"{many} workers, faults {', '.join(chosen)}, seed {seed}, run directory {folder}")
    report = run_drill(
        Drill(
            program=(script, *script_args),
            workers=many,
            faults=chosen,
            kills=kills,
            seed=seed,
            deterministic=deterministic,
            folder=folder,
            timeout=timeout,
            limit=limit,
        ),
        _say,
    )
    print_report(report, Console(soft_wrap=True))
    if json_file is not None:
        _write(Path(json_file), json.dumps(report.to_json(), indent=2) + "\n")
    return 0 if report.ok else 1


def _folder(stated: str | None, program: Program) -> Path:
    folder = run_dir_module.create(stated, f"drill-{program.name}", time.time())
    if (folder / "undisturbed").exists():
        # A job that is started in the directory of another goes on where that one was.
        raise UsageError(
            "TFRUN-105",
            f"{str(folder)!r} holds an earlier drill",
            where="--run-dir",
            fix="Name another directory, or remove it",
        )
    return folder


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(
            "TFRUN-105", f"{str(path)!r} cannot be written: {error.strerror}", where="--json"
        ) from None


def _say(text: str) -> None:
    print(f"tfrun: {text}", file=sys.stderr, flush=True)
