"""`tfrun page [RUN]`: a link to a running job's page, or the page of a job that has ended."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from tfrun.job import contact, run_dir
from tfrun.job.errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TFRUN_PAGE"}
EPILOG = "RUN is a run directory; by default the newest one in tfrun-runs."
ASK_SECONDS = 10.0


@click.command(context_settings=CONTEXT, epilog=EPILOG)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    envvar="TFRUN_PAGE_PORT",
    help="Where to serve the page of a job that has ended, on loopback.  [default: any free port]",
)
@click.argument("run", metavar="[RUN]", required=False)
def page(*, run: str | None, port: int) -> int:
    """Show a running or finished job in the browser.

    Prints a link that lets one browser in. For a job that has ended it serves the run directory
    until Ctrl-C.
    """
    folder = Path(run) if run is not None else run_dir.newest(Path("tfrun-runs"))
    if folder is None or not (folder / "events.jsonl").is_file():
        raise UsageError(
            "TFRUN-105",
            f"there is no run in {run or 'tfrun-runs here'!r:.200}",
            where="tfrun page",
            expected="the run directory of a job",
        )
    folder = folder.resolve()
    there = contact.read(folder)
    if there is not None and not there.is_gone and there.url is not None:
        key = asyncio.run(_key_of(there, there.url))
        if key:
            click.echo(there.link(key))
            return 0
    return asyncio.run(_serve(folder, port))


async def _key_of(there: contact.Contact, url: str) -> str | None:
    """Asks the job for a link's key; None when it does not answer any more."""
    import ssl

    import aiohttp

    headers = {"Authorization": f"Bearer {there.token}"}
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
    trust: ssl.SSLContext | bool = True
    if there.tls:
        # This very certificate, whatever name it is for: the file is ours.
        trust = ssl.create_default_context(cadata=there.tls)
        trust.check_hostname = False
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.post(f"{url}/key", ssl=trust) as answer,
        ):
            return str((await answer.json())["key"]) if answer.status == 200 else None
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
        return None


async def _serve(folder: Path, port: int) -> int:
    """Serves the run directory on loopback until somebody ends it."""
    import secrets
    import time

    from tfrun.observe.access import Access
    from tfrun.observe.monitor import view_of
    from tfrun.observe.page_server import PageServer
    from tfrun.observe.watch import Watch

    view = view_of(folder)  # it changes no more
    access = Access(secrets.token_urlsafe(32), knows_users=True)
    server = PageServer(Watch(folder, lambda heat: view.to_json(time.time(), heat=heat), access))
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
