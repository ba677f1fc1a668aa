"""The `tfrun` command: parses, calls, prints. Each verb has a file of its own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrun.cli import completion
from tfrun.cli.job_variables import of_a_job, unknown
from tfrun.cli.params import (
    CHECKPOINTS,
    DIRECTORY,
    FILE,
    SCRIPT_ARGUMENTS,
    SECONDS,
    Number,
    ScriptCommand,
    Whole,
    context,
)
from tfrun.job.errors import TfrunError
from tfrun.job.settings import leave_outer_job
from tfrun.job.spec import (
    BALANCES,
    COMMUNICATIONS,
    COMPRESSIONS,
    MAX_HERE,
    MAX_THREADS,
    MAX_WORKERS,
    OVERLAPS,
    START_METHODS,
    STRATEGIES,
    JobSpec,
)
from tfrun.job.timeouts import Timeouts
from tfrun.job.version import __version__

if TYPE_CHECKING:
    from tfrun.cli.options import Options

EPILOG = (
    "Everything after SCRIPT belongs to the script. Each option is also an environment variable."
)
# Verbs that start a job here, which a variable may have been meant for.
STARTS = ("bench", "drill", "parity", "serve", "tune")
# What stands where a script may stand. Each has a file of its own, with a command of its name.
VERBS = {
    "bench": "Measure all-reduces and scaling between workers, and say what to use.",
    "doctor": "Check whether machines are fit to train: what is wrong, and how to fix it.",
    "drill": "Run a script undisturbed, then under faults, and compare.",
    "env": "Print what a bug report needs: versions, machine, GPUs, variables.",
    "join": "Let this machine take part in a job of `serve`.",
    "ledger": "Prove that a run trained on every sample exactly once.",
    "logs": "Show what the workers of a job have printed.",
    "ls": "List the runs in this directory.",
    "page": "Show a running or finished job in the browser.",
    "parity": "Train a script's first steps on 1, 2, … workers, and say where they diverge.",
    "profile": "Trace the same steps of all workers of a running job, for TensorBoard.",
    "render": "Write manifests that run a job on Kubernetes.",
    "serve": "Run a script on machines that join by hand.",
    "stacks": "Show where the workers of a running job are now.",
    "status": "Show how far a job is, or how it ended.",
    "stop": "Make a job save its state and end.",
    "submit": "Hand a job over to Slurm.",
    "top": "Watch a job until it ends.",
    "tune": "Find the per-worker batch that is fastest and fits in memory.",
}


class _Command(ScriptCommand):
    """A command whose `--help` and `--version` no variable of the environment sets off."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        for param in params:
            # TFRUN_VERSION is what image builders call the version that they install.
            if isinstance(param, click.Option) and not param.expose_value:
                param.allow_from_autoenv = False
        return params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Verbs, instead of SCRIPT (each has a --help)"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=_Command, context_settings=context(script=True), epilog=EPILOG)
@click.version_option(__version__, prog_name="tfrun")
@click.option(
    "-n",
    "--workers",
    metavar="N|MIN:MAX",
    help="Number of workers.  [default: 1, or all slots of the hosts]",
)
@click.option(
    "-H", "--hosts", metavar="A,B:2", help="Hosts, over SSH; :2 is the number of workers there."
)
@click.option("--hostfile", **FILE, help="A file with a host on each line.")
@click.option("--cluster", **FILE, help="A cluster in JSON, with the tasks' addresses.")
@click.option("--ps", type=Whole(0, MAX_WORKERS), default=0, help="Number of parameter servers.")
@click.option(
    "--max-staleness",
    type=Whole(min=0),
    metavar="K",
    help="With --ps: how many updates late a gradient may be applied.  [default: any number]",
)
@click.option("--evaluator", is_flag=True, help="Evaluate each checkpoint in a separate process.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT names a module, as in python -m.")
@click.option("--run-dir", **DIRECTORY, help="Where to write.  [default: tfrun-runs/<job>]")
@click.option("--log-all", is_flag=True, help="Show every worker's output, prefixed.")
@click.option(
    "--remote-python", metavar="PATH", help="Python on the hosts.  [default: the same path as here]"
)
@click.option(
    "--remote-dir", metavar="DIR", help="Working directory on the hosts.  [default: as here]"
)
@click.option(
    "--env", metavar="NAME", multiple=True, help="Pass this environment variable on to the hosts."
)
@click.option("--sync", is_flag=True, help="Copy the script's directory to the hosts first.")
@click.option(
    "--join-timeout",
    **SECONDS,
    default=Timeouts.join_timeout,
    help="How long to wait until all workers can start.",
)
@click.option(
    "--rejoin-timeout",
    type=Number(min=0),
    default=Timeouts.rejoin_timeout,
    metavar="SECONDS",
    help="With -n MIN:MAX: how long to wait for a lost machine before going on with fewer workers.",
)
@click.option(
    "--launcher-timeout",
    **SECONDS,
    default=Timeouts.launcher_timeout,
    help="How long machines that cannot reach the launcher train on before they end.",
)
@click.option(
    "--grace",
    **SECONDS,
    default=Timeouts.preempt_grace,
    help="How long the job may take after SIGTERM to save, or to go on without that machine.",
)
@click.option(
    "--spares",
    type=Whole(0, MAX_HERE),
    default=0,
    metavar="K",
    help="Keep K more processes ready that replace workers at once when these die.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="auto",
    help="auto: a script that names no strategy trains on all workers; script: it stays as it is.",
)
@click.option(
    "--scale-batch",
    is_flag=True,
    help="Multiply the script's batch by the number of workers, and its learning rate to match.",
)
@click.option(
    "--replicas",
    type=Whole(min=1),
    metavar="V",
    help="Divide each batch into V pieces, for the same bits on 1 to V workers.  [default: N]",
)
@click.option(
    "--balance",
    type=click.Choice(BALANCES),
    default="off",
    help="auto: with --replicas, replicas move from slow workers to fast ones as the job runs.",
)
@click.option(
    "--in-place/--no-in-place",
    default=None,
    help="When a worker dies, the others go on in their processes.  [default: where they can]",
)
@click.option(
    "--shard-optimizer",
    is_flag=True,
    help="Each worker updates some of the weights, and has the optimizer's state for these alone.",
)
@click.option(
    "--communication",
    type=click.Choice(COMMUNICATIONS),
    default="auto",
    help="How gradients travel between workers.",
)
@click.option(
    "--compress",
    type=click.Choice(COMPRESSIONS),
    default="off",
    help="Send gradients in half the bytes; rounding errors are carried over to the next step.",
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="auto",
    help="Send gradients while others are still being computed; auto: only between machines.",
)
@click.option(
    "--measured/--no-measured",
    default=True,
    help="Use the settings that `tfrun bench` found fastest on these machines.",
)
@click.option(
    "--threads-per-worker",
    type=Whole(1, MAX_THREADS),
    help="Threads of each worker.  [default: cores / workers]",
)
@click.option("--start-method", type=click.Choice(START_METHODS), default="auto", hidden=True)
@click.option("--seed", type=Whole(min=0, max=2**31 - 1), help="Global random seed.")
@click.option(
    "--sync-check",
    type=Whole(min=0),
    default=0,
    metavar="K",
    help="Compare all variables between the workers every K steps (slow; for debugging).",
)
@click.option(
    "--strict",
    is_flag=True,
    help="End the job with exit code 3 instead of printing a coded warning.",
)
@click.option(
    "--max-restarts",
    type=Whole(min=0),
    default=JobSpec.max_restarts,
    metavar="N",
    help="How many failures in a row, without progress between them, to recover from.",
)
@click.option(
    "--hang-timeout",
    **SECONDS,
    default=Timeouts.hang_timeout,
    help="How long a worker may make no progress before it is replaced.",
)
@click.option(
    "--snapshot-every",
    default=JobSpec.snapshot_every,
    metavar="K|Ns",
    help="Steps or seconds between snapshots; 0: only when a worker fails.",
)
@click.option(
    "--steps-per-execution",
    default=JobSpec.steps_per_execution,
    metavar="script|auto|N",
    help="How many steps of fit go into one call of TensorFlow.",
)
@click.option(
    "--checkpoint-dir",
    **CHECKPOINTS,
    help="Where to save checkpoints: a path, s3://… or gs://…  [default: <run-dir>/checkpoints]",
)
@click.option(
    "--checkpoint-every",
    default=JobSpec.checkpoint_every,
    metavar="K|Ns|epoch|off",
    help="Steps or time between checkpoints on disk.",
)
@click.option(
    "--keep",
    type=Whole(min=1),
    default=JobSpec.keep,
    metavar="N",
    help="How many checkpoints to keep.",
)
@click.option(
    "--fresh", is_flag=True, help="Start from the beginning, even if there are checkpoints."
)
@click.option(
    "--deterministic", is_flag=True, help="Make TensorFlow compute the same bits every time."
)
@click.option("--ledger", is_flag=True, help="Record which samples each step consumes.")
@click.option(
    "--tls-cert",
    **FILE,
    help="Certificate, in PEM: use TLS between the launcher and agents on a network.",
)
@click.option("--tls-key", **FILE, help="Its private key, in PEM.")
@click.option("--page", is_flag=True, help="Print a link to the job's live page.")
@click.option(
    "--plain", is_flag=True, help="Print plain lines, also on a terminal; no live display."
)
@click.option("--tensorboard", **DIRECTORY, help="Write TensorBoard's files into DIR/<job>.")
@click.argument(
    "script", metavar="SCRIPT", shell_complete=lambda _c, _p, w: completion.first_words(w, VERBS)
)
@click.argument("script_args", **SCRIPT_ARGUMENTS)
def run(**told) -> int:
    """Run a Keras 3 / TensorFlow 2 script on one worker or many."""
    from tfrun.cli import run as verb

    return verb.run(options_of(click.get_current_context(), told))


def options_of(
    context: click.Context, told: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> Options:
    """Returns what a command line says, as click has parsed it, and what variables do."""
    from tfrun.cli.options import Options

    return Options.of(context, told, environment, of_a_job(environment, run, VERBS))


def command_for(argv: Sequence[str]) -> tuple[click.Command, list[str], str]:
    """Returns the command that `argv` names, its arguments, and how a person writes it.

    A script that has a verb's name is the script.
    """
    if argv and argv[0] in VERBS and not Path(argv[0]).is_file():
        verb = argv[0]
        command = getattr(importlib.import_module(f"tfrun.cli.{verb}"), verb)
        if isinstance(command, click.Group) and argv[1:2] and argv[1] in command.commands:
            return command.commands[argv[1]], list(argv[2:]), f"tfrun {verb} {argv[1]}"
        return command, list(argv[1:]), f"tfrun {verb}"
    return run, list(argv), "tfrun"


def _run(command: click.Command, args: list[str], name: str) -> int:
    try:
        return command.main(
            args=args, prog_name=name, standalone_mode=False, complete_var=completion.VARIABLE
        )
    except (FileNotFoundError, TfrunError):
        from tfrun.job.start_checks import check_directory

        check_directory()  # the one thing without which nothing is found
        raise


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command and exits with its code."""
    leave_outer_job(os.environ)
    argv = sys.argv[1:] if argv is None else argv
    asked = os.environ.get(completion.VARIABLE)
    if asked:
        argv = completion.verb_of(os.environ, VERBS)
    command, args, name = command_for(argv)
    if command is run or name.split()[-1] in STARTS:
        for text in unknown(os.environ, run, VERBS):
            click.echo(f"tfrun: {text}", err=True)
    try:
        if asked:
            completion.check(asked)
        code = _run(command, args, name)
    except TfrunError as error:
        click.echo(f"tfrun: {error}", err=True)
        code = error.exit_code
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        message = " ".join(error.format_message().split())
        click.echo(f"tfrun: TFRUN-105: {message} See {name} --help.", err=True)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
