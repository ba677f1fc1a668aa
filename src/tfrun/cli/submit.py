"""`tfrun submit slurm [options] SCRIPT …`: writes a batch script and submits it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from tfrun.cli import misplaced_options
from tfrun.cli.params import DIRECTORY, SCRIPT_ARGUMENTS, ScriptCommand, Whole, context, files
from tfrun.cli.shared_options import say
from tfrun.job import run_dir as run_dir_module
from tfrun.job.spec import Program, WorkerRange
from tfrun.job.start_checks import check_program

CONTEXT = context("submit", script=True)
OUTPUT = "slurm.log"
EPILOG = "To pass the job any other option of tfrun, set its environment variable."


@click.group(context_settings=CONTEXT)
def submit() -> None:
    """Hand a job over to a scheduler."""


@submit.command(cls=ScriptCommand, context_settings=CONTEXT, epilog=EPILOG)
@click.option("-N", "--nodes", type=Whole(min=1), default=1, metavar="N", help="How many nodes.")
@click.option(
    "-n",
    "--workers",
    metavar="N|MIN:MAX",
    help="Number of workers, in all.  [default: one on each node]",
)
@click.option("-p", "--partition", metavar="NAME", help="The partition.")
@click.option("-A", "--account", metavar="NAME", help="The account.")
@click.option("-t", "--time", "limit", metavar="TIME", help="The time limit, such as 2:00:00.")
@click.option("-c", "--cpus-per-task", metavar="N", help="Cores for each worker.")
@click.option("--gpus-per-node", metavar="N", help="GPUs of each node.")
@click.option("--mem", metavar="SIZE", help="Memory of each node, such as 64G.")
@click.option("-J", "--job-name", metavar="NAME", help="The job's name.  [default: the script's]")
@click.option(
    "--grace",
    type=Whole(min=30, max=65535),
    default=60,
    metavar="SECONDS",
    help="How long before its time limit the job gets SIGTERM, to save.",
)
@click.option(
    "--sbatch",
    multiple=True,
    metavar="OPTION",
    help='Any other option of sbatch, such as "--qos=high".',
)
@click.option(
    "--setup",
    multiple=True,
    metavar="LINE",
    help='A shell command to run before tfrun, such as "module load cuda".',
)
@click.option("--run-dir", **DIRECTORY, help="Where to write.  [default: tfrun-runs/<job>]")
@click.option("--dry-run", is_flag=True, help="Only show the batch script.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT names a module, as in python -m.")
@click.argument("script", metavar="SCRIPT", shell_complete=files)
@click.argument("script_args", **SCRIPT_ARGUMENTS)
def slurm(
    *,
    nodes: int,
    workers: str | None,
    partition: str | None,
    account: str | None,
    limit: str | None,
    cpus_per_task: str | None,
    gpus_per_node: str | None,
    mem: str | None,
    job_name: str | None,
    grace: int,
    sbatch: tuple[str, ...],
    setup: tuple[str, ...],
    run_dir: str | None,
    dry_run: bool,
    module: bool,
    script: str,
    script_args: tuple[str, ...],
) -> int:
    """Write a batch script for Slurm and submit it.

    When the job is preempted, it saves its state, asks to be requeued, and continues in the same
    run directory.
    """
    from tfrun.cli.forwarded_options import check
    from tfrun.launcher.slurm.batch_script import (
        GRACE_MARGIN,
        Submission,
        batch_script,
        check_options,
    )
    from tfrun.launcher.slurm.commands import call

    program = Program(target=script, is_module=module, args=script_args)
    check_program(program)
    wanted = WorkerRange.parse(workers) if workers else None
    now = time.time()
    asked = {
        "--partition": partition,
        "--account": account,
        "--time": limit,
        "--cpus-per-task": cpus_per_task,
        "--gpus-per-node": gpus_per_node,
        "--mem": mem,
    }
    check_options(asked)
    args = ["--grace", str(grace - GRACE_MARGIN), *(["-n", str(wanted)] if wanted else [])]
    args += [*(["-m"] if module else []), script, *script_args]
    check(args, os.environ)
    if nodes == 1 and (text := misplaced_options.found(click.get_current_context())):
        say(text)

    def written(path: Path) -> str:
        what = Submission(
            name=job_name or program.name,
            nodes=nodes,
            workers=wanted,
            directory=os.getcwd(),  # noqa: PTH109 (as the shell has it)
            output=str(path / OUTPUT),
            grace=grace,
            asked=[f"{name}={value}" for name, value in asked.items() if value] + list(sbatch),
            setup=setup,
        )
        return batch_script(what, [*_tfrun(), "--run-dir", str(path), *args])

    path = Path(run_dir or Path("tfrun-runs", run_dir_module.default_name(program.name, now)))
    text = written(path.absolute())
    if dry_run:
        click.echo(text, nl=False)
        return 0
    path = run_dir_module.create(run_dir, program.name, now)
    file = path / "job.sbatch"
    file.write_text(written(path), encoding="utf-8")
    job = call("sbatch", "--parsable", str(file)).strip().partition(";")[0]
    click.echo(job)
    click.echo(f"tfrun: submitted {file} as job {job}; its output: {path / OUTPUT}", err=True)
    return 0


def _tfrun() -> list[str]:
    """The command as the nodes find it: this very installation."""
    command = Path(sys.executable).with_name("tfrun")
    return [str(command)] if command.exists() else [sys.executable, "-m", "tfrun"]
