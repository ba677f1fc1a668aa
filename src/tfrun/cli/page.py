"""`tfrun page [RUN]`: a link to a running job's page, or the page of a job that has ended."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from tfrun.cli.find_run import EPILOG, found, run_argument
from tfrun.cli.params import context
from tfrun.job import control_contact
from tfrun.job.errors import UsageError


@click.command(context_settings=context("page"), epilog=EPILOG)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    envvar="TFRUN_PAGE_PORT",
    show_default="any free one",
    help="Where to serve the page of a job that has ended, on loopback.",
)
@run_argument
def page(*, run: str | None, port: int) -> int:
    """Show a running or finished job in the browser.

    Prints a link that lets one browser in. For a job that has ended it serves the run directory
    until Ctrl-C.
    """
    folder = found(run)
    from tfrun.observe import ask_job

    try:
        key = ask_job.ask(folder, "/key", {})["key"]
    except (ask_job.NoAnswer, KeyError):
        return asyncio.run(_serve(folder, port))
    there = control_contact.read(folder)
    click.echo(there.link(key) if there else key)
    return 0


async def _serve(folder: Path, port: int) -> int:
    """Serves the run directory on loopback until somebody ends it."""
    import secrets
    import time

    from tfrun.observe.access import Access
    from tfrun.observe.ended_run_server import PageServer
    from tfrun.observe.monitor import view_of
    from tfrun.observe.page_server import WatchRoutes

    view = view_of(folder)  # it changes no more
    access = Access(secrets.token_urlsafe(32), knows_users=True)
    server = PageServer(
        WatchRoutes(folder, lambda heat: view.to_json(time.time(), heat=heat), access)
    )
    try:
        await server.start("127.0.0.1", port)
    except OSError as error:
        raise UsageError(
            "TFRUN-105", f"port {port} cannot be had: {error.strerror}", where="--port"
        ) from None
    ended = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    click.echo(f"http://127.0.0.1:{server.port}/?key={access.new_key()}")
    click.echo("tfrun: the job has ended; Ctrl-C ends the page", err=True)
    await ended.wait()
    await server.close()
    return 0
