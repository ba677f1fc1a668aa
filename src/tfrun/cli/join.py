"""`tfrun join HOST:PORT --token-file F`: this machine takes part in a job of `tfrun serve`."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from tfrun.cli.params import FILE, SECONDS, Whole, context
from tfrun.cli.shared_options import say
from tfrun.cluster.address import parse_address
from tfrun.job import start_checks
from tfrun.job.spec import MAX_WORKERS
from tfrun.job.timeouts import Timeouts


@click.command(context_settings=context("join"))
@click.option("--token-file", **FILE, required=True, help="The job's secret, from tfrun serve.")
@click.option("--slots", type=Whole(1, MAX_WORKERS), default=1, help="Workers on this machine.")
@click.option(
    "--tls-ca",
    **FILE,
    help="Use TLS, and trust these certificates, in PEM; `system` for the system's.",
)
@click.option(
    "--join-timeout",
    **SECONDS,
    default=Timeouts.join_timeout,
    help="How long to try until the job lets this machine in.",
)
@click.argument("address", metavar="HOST:PORT")
def join(
    *, address: str, token_file: str, slots: int, tls_ca: str | None, join_timeout: float
) -> int:
    """Take part in a job that `tfrun serve` runs, from the directory with the script."""
    from tfrun.control.protocol import tls
    from tfrun.launcher.join import token_file as token
    from tfrun.launcher.join.join import Join, Joining

    wanted = None
    if tls_ca:
        wanted = {"authority": "" if tls_ca == "system" else tls_ca}
        tls.trusting(wanted)  # what is wrong with it is to be known now
    joining = Joining(
        address=parse_address(address, where="HOST:PORT"),
        token=token.read(Path(token_file)),
        slots=slots,
        timeout=join_timeout,
        tls=wanted,
    )
    start_checks.check_tensorflow()
    return asyncio.run(_run(Join(joining, say)))


async def _run(join) -> int:
    loop = asyncio.get_running_loop()
    interrupted: list[int] = []

    def leave(signum: int) -> None:
        interrupted.append(signum)
        join.leave()

    for signum in (signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, leave, signum)
    loop.add_signal_handler(signal.SIGTERM, join.preempted)
    await join.run()
    return 128 + interrupted[0] if interrupted else 0
