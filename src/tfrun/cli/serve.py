"""`tfrun serve [options] SCRIPT …`: a job whose other machines join by hand."""

from __future__ import annotations

import copy
import os
from typing import Any

import click

from tfrun.cli.host_options import any_cluster
from tfrun.cli.job_variables import PREFIX
from tfrun.cli.main import options_of
from tfrun.cli.main import run as whole
from tfrun.cli.params import FILE, ScriptCommand, Whole, context, files
from tfrun.cluster.address import parse_address
from tfrun.cluster.cluster_spec import ROLES, TaskKey
from tfrun.cluster.external_cluster import serves
from tfrun.cluster.tf_config import parse_tf_config, render
from tfrun.job.errors import UsageError
from tfrun.job.spec import MAX_WORKERS

EPILOG = (
    "It prints the command to run on the other machines. Copy the file with the token to them in a "
    "way that nobody else can read. The job starts when there are slots for all workers."
)
# What says which machines: here nobody knows yet.
OTHERS = ("hosts", "hostfile", "cluster", "remote_python", "remote_dir", "env", "sync", "ps")
LAST = (*OTHERS, "workers", "version", "script", "script_args")
OWN: list[click.Parameter] = [
    click.Option(
        ["-n", "--workers"],
        metavar="N|MIN:MAX",
        envvar=f"{PREFIX}WORKERS",
        help="Number of workers.",
    ),
    click.Option(
        ["--cluster"],
        **FILE,
        help="A cluster in JSON, of which this process is one task: with --role.",
    ),
    click.Option(["--role"], type=click.Choice(ROLES), help="The task's role in that cluster."),
    click.Option(
        ["--index"], type=Whole(min=0), default=0, help="Its number in that role, from 0."
    ),
    click.Option(
        ["--listen"],
        metavar="ADDRESS:PORT",
        help="Where to listen.  [default: all interfaces, any free port]",
    ),
    click.Option(
        ["--slots"],
        type=Whole(0, MAX_WORKERS),
        default=1,
        help="Workers on this machine.",
    ),
    click.Option(
        ["--token-file"],
        **FILE,
        help="The job's secret; created if it is missing.  [default: <run-dir>/token]",
    ),
]


def _serve(
    *,
    listen: str | None,
    slots: int,
    token_file: str | None,
    cluster: str | None,
    role: str | None,
    index: int,
    **told: Any,
) -> int:
    """Run a script on machines that join with `tfrun join`.

    Or, with --role, be one task of a cluster that is started by hand, each task on its machine.
    """
    from tfrun.cli import run as verb
    from tfrun.launcher.join.serve import EVERYWHERE, Serving

    if role or cluster:
        if not (role and cluster):
            fix = "Give both, or none"
            raise UsageError("TFRUN-107", "--role and --cluster belong together", fix=fix)
        if told["workers"]:
            what = "--cluster states the whole cluster, so -n must not state a part of it"
            raise UsageError("TFRUN-107", what, fix="Leave out -n")
        told["script"] = _be(TaskKey(type=role, index=index), cluster, told["script"])
        return verb.run(options_of(click.get_current_context(), told))
    if not told["workers"]:
        raise UsageError("TFRUN-105", "the number of workers is missing", where="-n")
    if not told["script"]:
        raise UsageError("TFRUN-105", "the script is missing", where="SCRIPT")
    host, port = _listen(listen) if listen else (EVERYWHERE[0], 0)
    serving = Serving(host=host, port=port, slots=slots, token_file=token_file or "")
    return verb.run(options_of(click.get_current_context(), told), serving)


def _be(task: TaskKey, path: str, script: str | None) -> str:
    """Makes this process that task of the cluster file, and returns what it runs."""
    if "TF_CONFIG" in os.environ:
        what = "TF_CONFIG and --role both say which task this process is"
        raise UsageError("TFRUN-107", what, fix="Unset TF_CONFIG, or leave out --role")
    cluster = any_cluster(path)
    text = render(cluster, task)
    parse_tf_config(text, where=path)
    if not script and not serves(task.type, bool(cluster.count("ps"))):
        what = f"a {task.type} runs the script, and none is given"
        raise UsageError("TFRUN-105", what, where="SCRIPT")
    os.environ["TF_CONFIG"] = text
    return script or task.type


def _listen(text: str) -> tuple[str, int]:
    """Reads `ADDRESS:PORT`, `:PORT` or `ADDRESS`, where the port may be 0 and the address any."""
    from tfrun.launcher.join.serve import EVERYWHERE

    anywhere = (*EVERYWHERE, "[::]")
    host, colon, port = text.rpartition(":")
    if text in anywhere or not colon:
        return text.strip("[]"), 0
    is_port = port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16
    if port == "0" or (host in ("", *anywhere) and is_port):
        return host.strip("[]") or EVERYWHERE[0], int(port)
    address = parse_address(text, where="--listen")
    return address.host, address.port


def _as_of_any_job(param: click.Parameter) -> click.Parameter:
    """Returns that option of every job's: one variable states it, whichever way the job starts."""
    param = copy.copy(param)
    param.envvar = f"{PREFIX}{str(param.name).upper()}"
    return param


serve = ScriptCommand(
    "serve",
    context_settings=context("serve", script=True),
    callback=_serve,
    params=[
        *OWN,
        *(_as_of_any_job(p) for p in whole.params if p.name not in LAST),
        click.Argument(["script"], metavar="[SCRIPT]", required=False, shell_complete=files),
        *(p for p in whole.params if p.name == "script_args"),
    ],
    help=_serve.__doc__,
    epilog=EPILOG,
)
