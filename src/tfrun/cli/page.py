"""`tfrun page [RUN]`: a link to a running job's page, or the page of a job that has ended."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from pathlib import Path

import click

from tfrun.cli.find_run import about_run
from tfrun.cli.params import Whole
from tfrun.job import control_contact
from tfrun.job.errors import UsageError


@about_run
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=0,
    envvar="TFRUN_PAGE_PORT",
    show_default="any free one",
    help="Where to serve the page of a job that has ended, on loopback.",
)
def page(run_dir: Path, *, port: int) -> int:
    """Show a running or finished job in the browser.

    Prints a link that lets one browser in. For a job that has ended it serves the run directory
    until Ctrl-C.
    """
    from tfrun.observe import ask_job

    try:
        key = ask_job.ask(run_dir, "/key", {})["key"]
    except (ask_job.NoAnswer, KeyError):
        return asyncio.run(_serve(run_dir, port))
    there = control_contact.read(run_dir)
    click.echo(there.link(key) if there else key)
    return 0


async def _serve(run_dir: Path, stated: int) -> int:
    """Serves the run directory on loopback until somebody ends it."""
    from tfrun.observe.access import REFUSED, Access
    from tfrun.observe.monitor import view_of
    from tfrun.observe.page_server import WatchRoutes
    from tfrun.observe.public_port import Port

    view = view_of(run_dir)  # it changes no more
    access = Access(secrets.token_urlsafe(32), knows_users=True)
    watch = WatchRoutes(run_dir, lambda heat: view.to_json(time.time(), heat=heat), access)
    port = Port(watch.routes(), access.admits, refusal=REFUSED)
    try:
        await port.start("127.0.0.1", stated)
    except OSError as error:
        raise UsageError(
            "TFRUN-105", f"port {stated} is not available: {error.strerror}", where="--port"
        ) from None
    ended = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    click.echo(f"http://127.0.0.1:{port.number}/?key={access.new_key()}")
    click.echo("tfrun: the job has ended; Ctrl-C ends the page", err=True)
    await ended.wait()
    await watch.close()
    await port.close()
    return 0
