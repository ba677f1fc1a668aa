"""`tfrun render kubernetes [options] SCRIPT …`: writes manifests to standard output."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import click

from tfrun.cli import misplaced_options
from tfrun.cli.params import SCRIPT_ARGUMENTS, ScriptCommand, Whole, context, files
from tfrun.cli.shared_options import say
from tfrun.job.errors import TfrunError, UsageError
from tfrun.job.run_dir import safe_name
from tfrun.job.spec import Program, WorkerRange

CONTEXT = context("render", script=True)
EPILOG = "Options of tfrun itself go to the job by --env TFRUN_…=VALUE."


def _text(name: str, metavar: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns an option whose default is no text."""
    return click.option(name, default="", show_default=False, metavar=metavar, help=what)


@click.group(context_settings=CONTEXT)
def render() -> None:
    """Write what another system needs to run a job."""


@render.command(cls=ScriptCommand, context_settings=CONTEXT, epilog=EPILOG)
@click.option("-n", "--workers", default="1", metavar="N|MIN:MAX", help="How many workers.")
@click.option(
    "--image",
    required=True,
    metavar="IMAGE",
    help="An image with tfrun, TensorFlow and the script.",
)
@click.option(
    "--kind", type=click.Choice(["job", "jobset", "tfjob"]), default="job", help="What to make."
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of everything that is made.  [default: the script's]",
)
@_text("--namespace", "NAME", "Namespace of it.  [default: kubectl's]")
@click.option("--per-pod", type=Whole(min=1), default=1, metavar="N", help="Workers of each pod.")
@click.option("--ps", type=Whole(min=0), default=0, help="Number of parameter servers.")
@click.option("--gpus", type=Whole(min=0), default=0, metavar="N", help="GPUs of each pod.")
@_text("--cpu", "N", "Cores of each pod, such as 4 or 500m.")
@_text("--memory", "SIZE", "Memory of each pod, such as 16Gi.")
@click.option("--shm", default="2Gi", metavar="SIZE", help="Size of /dev/shm, for snapshots.")
@_text("--claim", "NAME", "A claim for the run directory, ReadWriteMany.  [default: make one]")
@click.option("--storage", default="10Gi", metavar="SIZE", help="Size of the claim that is made.")
@_text("--storage-class", "NAME", "Class of the claim that is made.")
@_text("--secret", "NAME", 'A Secret with the key "token".  [default: make one]')
@_text(
    "--tls-secret",
    "NAME",
    "A Secret of the type kubernetes.io/tls: the pods' control connections use it.",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of the containers.")
@_text("--workdir", "DIR", "Working directory.  [default: the image's]")
@click.option(
    "--grace",
    type=Whole(min=1),
    default=90,
    metavar="SECONDS",
    help="Time to save before a pod is killed.",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT names a module, as in python -m.")
@click.argument("script", metavar="SCRIPT", shell_complete=files)
@click.argument("script_args", **SCRIPT_ARGUMENTS)
def kubernetes(
    *,
    workers: str,
    kind: str,
    name: str | None,
    env: tuple[str, ...],
    workdir: str,
    module: bool,
    script: str,
    script_args: tuple[str, ...],
    **rest: Any,
) -> int:
    """Write manifests for Kubernetes: the same image runs every role.

    SCRIPT is a path in the image; it need not be here.
    """
    from tfrun.cli.forwarded_options import check
    from tfrun.launcher.pods.manifests import Deployment, manifests

    for pair in env:
        if "=" not in pair:
            raise UsageError("TFRUN-105", f"{pair!r:.80} has no =", where="--env")
    program = Program(target=script, is_module=module)
    what = Deployment(
        name=name or safe_name(program.name).lower().replace("_", "-").replace(".", "-"),
        command=[*(["-m"] if module else []), script, *script_args],
        workers=WorkerRange.parse(workers),
        token=secrets.token_urlsafe(32),
        environment=dict(pair.split("=", 1) for pair in env),
        directory=workdir,
        **rest,
    )
    check(what.arguments, what.environment, external="TF_CONFIG" if kind == "tfjob" else "")
    if what.workers.high == 1 and (text := misplaced_options.found(click.get_current_context())):
        say(text)
    click.echo(_yaml(manifests(what, kind)), nl=False)
    return 0


def _yaml(documents: list[dict]) -> str:
    try:
        import yaml
    except ImportError:
        fix = 'Install it: pip install "tfrun[kubernetes]"'
        raise TfrunError("TFRUN-308", "PyYAML is not installed", fix=fix) from None

    class Plain(yaml.SafeDumper):
        """Writes what stands in two places twice: people read and edit it."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return yaml.dump_all(documents, Dumper=Plain, sort_keys=False, width=100)
