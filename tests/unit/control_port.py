"""A real control port on loopback, and a client's ways to talk to it, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tfrun.control import messages
from tfrun.control.controller import Controller
from tfrun.control.plan import Site, Whereabouts, make_plan
from tfrun.control.server import ControlServer
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts
from tfrun.observe.events import EventLog, read_events
from tfrun.observe.terminal import Terminal

TOKEN = "the-token"
SECONDS = 20
DEFAULT = Timeouts()


@dataclass(frozen=True, kw_only=True)
class Served:
    """A controller that waits for the agents "a" and "b", and its port."""

    controller: Controller
    session: aiohttp.ClientSession
    url: str
    port: int
    log: Path

    @property
    def events(self) -> list[str]:
        return [event["event"] for event in read_events(self.log)]

    async def connect(self, token: str = TOKEN) -> aiohttp.ClientWebSocketResponse:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.session.ws_connect(self.url, headers=headers, max_msg_size=0)

    async def join(self, agent: str) -> aiohttp.ClientWebSocketResponse:
        socket = await self.connect()
        await socket.send_str(messages.encode(hello(agent)))
        return socket

    async def is_alive(self) -> bool:
        """A port that still answers, and knows who may ask."""
        async with self.session.get(self.url) as answer:
            return answer.status == 401


def hello(agent: str) -> messages.Hello:
    return messages.Hello(agent=agent, host="h", pid=1, version="0", python="3")


@contextlib.asynccontextmanager
async def serving(
    directory: Path, timeouts: Timeouts, low: int, known: Whereabouts | None
) -> AsyncIterator[Served]:
    spec = JobSpec(
        program=Program(target="train.py"),
        workers=WorkerRange(low=low, high=2),
        run_dir=str(directory),
        timeouts=timeouts,
    )
    sites = [Site(agent=name, host="127.0.0.1", slots=1) for name in ("a", "b")]
    plan = make_plan(spec, sites)
    log = directory / "events.jsonl"
    events = EventLog(log)
    terminal = Terminal(prefix_all=False, chief=plan.chief)
    controller = Controller(spec, plan, events, terminal, whereabouts=known)
    control = ControlServer(controller, TOKEN)
    await control.start("127.0.0.1")
    controller.start()
    url = f"http://127.0.0.1:{control.port}/agent"
    try:
        async with aiohttp.ClientSession() as session:
            yield Served(
                controller=controller, session=session, url=url, port=control.port, log=log
            )
    finally:
        await control.close()
        terminal.close()
        events.close()


def with_server(
    directory: Path,
    test: Callable[[Served], Awaitable[None]],
    timeouts: Timeouts = DEFAULT,
    *,
    low: int = 2,
    known: Whereabouts | None = None,
    seconds: float = SECONDS,
) -> None:
    """Runs `test` with a controller of `low` to two workers, on "a" and "b"."""

    async def run() -> None:
        async with serving(directory, timeouts, low, known) as served:
            await asyncio.wait_for(test(served), seconds)
            assert await served.is_alive()

    asyncio.run(run())


async def receive(socket: aiohttp.ClientWebSocketResponse) -> messages.Message:
    return messages.decode(await socket.receive_str(timeout=SECONDS))


async def send(socket: aiohttp.ClientWebSocketResponse, frame: str | bytes) -> None:
    # The server may well close before it has read all of a frame.
    with contextlib.suppress(ConnectionError, aiohttp.ClientError):
        await (socket.send_bytes if isinstance(frame, bytes) else socket.send_str)(frame)


async def closed(socket: aiohttp.ClientWebSocketResponse) -> int | None:
    """Reads until the server has closed the connection; returns its close code."""
    async for _ in socket:
        pass
    return socket.close_code


async def prepare(served: Served) -> list[aiohttp.ClientWebSocketResponse]:
    """Both agents join and are asked to prepare."""
    sockets = [await served.join(name) for name in ("a", "b")]
    for socket in sockets:
        assert await receive(socket) == messages.Prepare(round=0, ports=1)
    return sockets
