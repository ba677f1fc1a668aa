"""`tfrun doctor [-H …]`: are these machines fit to train?"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrun.cli.host_options import stated_hosts
from tfrun.cli.params import DIRECTORY, FILE, context

if TYPE_CHECKING:
    from tfrun.tools.doctor.examine import Examination


@click.command(context_settings=context("doctor"))
@click.option("-H", "--hosts", metavar="A,B", help="Hosts over SSH.  [default: this machine]")
@click.option("--hostfile", **FILE, help="A file with a host on each line.")
@click.option(
    "--remote-python", metavar="PATH", help="Python on the hosts.  [default: the same path as here]"
)
@click.option(
    "--remote-dir", metavar="DIR", help="Working directory on the hosts.  [default: as here]"
)
@click.option("--run-dir", **DIRECTORY, default="tfrun-runs", help="Where jobs write.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor(
    *,
    hosts: str | None,
    hostfile: str | None,
    remote_python: str | None,
    remote_dir: str | None,
    run_dir: str,
    as_json: bool,
) -> int:
    """Look for what would make training fail or slow, before anything trains.

    The exit code is 1 when training would fail.
    """
    from tfrun.tools.doctor.examine import examine
    from tfrun.tools.doctor.findings import fails
    from tfrun.tools.doctor.probed_machine import ProbedMachine

    python = remote_python or sys.executable
    machines = [ProbedMachine(host, python) for host in stated_hosts(hosts, hostfile)]
    machines = machines or [ProbedMachine(None, sys.executable)]
    found = asyncio.run(
        examine(
            machines,
            lambda text: click.echo(f"tfrun: {text}", err=True),
            directory=remote_dir or str(Path.cwd()),
            run_dir=str(Path(run_dir).absolute()),  # the same path on all machines
        )
    )
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        _show(found)
    return 1 if fails(found.findings) else 0


def _show(found: Examination) -> None:
    from tfrun.tools.doctor.findings import ERROR, SEVERITIES, WARNING

    for name, facts in found.machines.items():
        click.echo(f"{name}: {_line(facts)}")
    if found.sum:
        speed, seconds = found.sum["bytes_per_second"], found.sum["seconds"]
        what = f"sum over {found.sum['machines']} machines"
        click.echo(f"{what}: {speed / 1e6:.0f} MB/s each, {seconds * 1e3:.2f} ms for a few bytes")
    for finding in sorted(found.findings, key=lambda one: SEVERITIES.index(one.severity)):
        click.echo(f"\n{finding.severity}: {finding.where}: {finding.what}.")
        click.echo(f"  Why: {finding.why}.\n  Fix: {finding.fix}.")
    counts = [sum(f.severity == kind for f in found.findings) for kind in (ERROR, WARNING)]
    if not found.findings:
        click.echo("fit to train: nothing was found")
    else:
        verdict = "training would fail" if counts[0] else "fit to train"
        click.echo(f"\n{verdict}: errors {counts[0]}, warnings {counts[1]}")


def _line(facts: dict[str, Any]) -> str:
    versions, gb = facts["versions"], 1 << 30
    tensorflow = [f"{k} {v}" for k, v in versions.items() if k.startswith(("tensorflow", "tf-"))]
    gpus = f"{len(facts['gpus'])} x {facts['gpus'][0]['name']}" if facts["gpus"] else "no GPU"
    parts = [
        f"Python {versions['python']}",
        *tensorflow,
        f"{facts['cores']} cores",
        gpus,
        f"{facts['memory']['free'] / gb:.1f} of {facts['memory']['total'] / gb:.1f} GB free",
    ]
    address = facts["address"]
    interface = [i["name"] for i in facts["interfaces"] if i["address"] == address]
    if address:
        parts.append(" ".join([address, *(f"({name})" for name in interface[:1])]))
    return " · ".join(parts)
