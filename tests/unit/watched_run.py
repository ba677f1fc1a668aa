"""A run directory with a small job, served on loopback, to test the page and the status API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tfrun.observe.access import REFUSED, Access
from tfrun.observe.events import EventLog
from tfrun.observe.page_server import WatchRoutes
from tfrun.observe.public_port import Port

TOKEN = "the-status-token"
OWNER = {"Authorization": f"Bearer {TOKEN}"}
SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A run, its port, and a client that sends no token unless told to."""

    run_dir: Path
    events: EventLog
    view: dict[str, Any]
    watch: WatchRoutes
    session: aiohttp.ClientSession
    port: int

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def get(
        self, path: str, headers: dict[str, str] | None = None
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Asks as the owner, unless other headers are given; the path travels as it is."""
        from yarl import URL

        url = URL(self.url(path), encoded=True)
        async with self.session.get(url, headers=OWNER if headers is None else headers) as answer:
            return answer, await answer.read()


@contextlib.asynccontextmanager
async def serving(directory: Path, *, knows_users: bool) -> AsyncIterator[Watched]:
    run_dir = directory / "run"
    (run_dir / "logs").mkdir(parents=True)
    view: dict[str, Any] = {"version": 1, "name": "small", "state": "training"}
    watch = WatchRoutes(run_dir, lambda heat: dict(view), Access(TOKEN, knows_users=knows_users))
    port = Port(watch.routes(), watch.access.admits, refusal=REFUSED)
    events = EventLog(run_dir / "events.jsonl")
    await port.start("127.0.0.1")
    try:
        jar = aiohttp.CookieJar(unsafe=True)  # which keeps cookies of addresses without a name
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            yield Watched(
                run_dir=run_dir,
                events=events,
                view=view,
                watch=watch,
                session=session,
                port=port.number,
            )
    finally:
        await watch.close()
        await port.close()
        events.close()


def with_run(
    directory: Path, test: Callable[[Watched], Awaitable[None]], *, knows_users: bool = False
) -> None:
    """Runs `test` with a run that is served."""

    async def run() -> None:
        async with serving(directory, knows_users=knows_users) as watched:
            await asyncio.wait_for(test(watched), SECONDS)

    asyncio.run(run())
