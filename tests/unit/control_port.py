"""A real control port on loopback, and a client for it, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.protocol import messages, wire
from tfrun.control.round_runner import RoundRunner
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
    """A controller that waits for the agents "a" and "b", with a client of its port."""

    controller: Controller
    session: aiohttp.ClientSession
    url: str
    port: int
    log: Path
    sockets: weakref.WeakSet[aiohttp.ClientWebSocketResponse]

    @property
    def events(self) -> list[str]:
        return [event["event"] for event in read_events(self.log)]

    async def connect(self, token: str = TOKEN) -> aiohttp.ClientWebSocketResponse:
        headers = {"Authorization": f"Bearer {token}"}
        socket = await self.session.ws_connect(
            self.url, headers=headers, max_msg_size=0, timeout=aiohttp.ClientWSTimeout(ws_close=1)
        )
        self.sockets.add(socket)
        return socket

    async def join(self, agent: str, **programs: str) -> aiohttp.ClientWebSocketResponse:
        socket = await self.connect()
        await socket.send_str(wire.encode(hello(agent, **programs)))
        return socket

    async def is_alive(self) -> bool:
        """A port that still answers, and knows who may ask."""
        async with self.session.get(self.url) as answer:
            return answer.status == 401


def hello(agent: str, **programs: str) -> messages.Hello:
    return messages.Hello(agent=agent, host="h", pid=1, version="0", programs=programs)


@contextlib.asynccontextmanager
async def serving(
    directory: Path, timeouts: Timeouts, low: int, known: Whereabouts | None, machines: str
) -> AsyncIterator[Served]:
    spec = JobSpec(
        program=Program(target="train.py"),
        workers=WorkerRange(low=low, high=len(machines)),
        run_dir=str(directory),
        timeouts=timeouts,
    )
    sites = [Site(agent=name, host="127.0.0.1", slots=1) for name in machines]
    plan = make_plan(spec, sites)
    log = directory / "events.jsonl"
    events = EventLog(log)
    terminal = Terminal(prefix_all=False, chief=plan.chief)
    controller = Controller(RoundRunner(spec, plan, events, terminal, known or Whereabouts()))
    control = ControlServer(controller, TOKEN)
    await control.start("127.0.0.1")
    controller.start()
    url = f"http://127.0.0.1:{control.port}/agent"
    try:
        sockets: weakref.WeakSet[aiohttp.ClientWebSocketResponse] = weakref.WeakSet()
        async with aiohttp.ClientSession() as session:
            yield Served(
                controller=controller,
                session=session,
                url=url,
                port=control.port,
                log=log,
                sockets=sockets,
            )
            for socket in list(sockets):
                await socket.close()
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
    machines: str = "ab",
    seconds: float = SECONDS,
) -> None:
    """Runs `test` with a controller of `low` to two workers, on "a" and "b", or on others."""

    async def run() -> None:
        async with serving(directory, timeouts, low, known, machines) as served:
            await asyncio.wait_for(test(served), seconds)
            assert await served.is_alive()

    asyncio.run(run())


async def receive(socket: aiohttp.ClientWebSocketResponse) -> wire.Message:
    return wire.decode(await socket.receive_str(timeout=SECONDS))


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
    """All agents join and are asked to prepare."""
    sites = served.controller.runner.plan.sites
    sockets = [await served.join(site.agent) for site in sites]
    for socket in sockets:
        assert await receive(socket) == messages.Prepare(round=0, ports=1)
    return sockets


# --- what two agents say that come and go -----------------------------------------------------

Socket = aiohttp.ClientWebSocketResponse
QUICK = Timeouts(heartbeat_interval=0.05, heartbeat_timeout=8.0, settle=0.1, grow_after=0.1)
PEER = {"kind": "error", "type": "UnavailableError", "message": "", "traceback": ""}


def returning() -> Whereabouts:
    return Whereabouts(expected={"a", "b"})


async def say(socket: Socket, message: wire.Message) -> None:
    await socket.send_str(wire.encode(message))


async def prepared(socket: Socket, number: int, *ports: int) -> None:
    await say(socket, messages.Prepared(round=number, ports=list(ports), import_seconds=0.0))


async def started(socket: Socket, number: int) -> list[dict]:
    message = await receive(socket)
    assert isinstance(message, messages.StartRound) and message.round == number
    return message.tasks


async def report(socket: Socket, number: int, task: str, values: dict[str, Any]) -> None:
    await say(socket, messages.WorkerReport(round=number, task=task, time=1.0, report=values))


async def leaves(socket: Socket, number: int, task: str) -> None:
    """The worker keeps its state and ends, as it does when a peer has gone."""
    await report(socket, number, task, PEER)
    ended = {"code": 1, "out_of_memory": False, "requested": False, "tail": ""}
    await say(socket, messages.WorkerExited(round=number, task=task, time=2.0, **ended))


async def running(served: Served) -> list[Socket]:
    sockets = await prepare(served)
    for port, socket in enumerate(sockets, start=2000):
        await prepared(socket, 0, port)
    for socket in sockets:
        assert len(await started(socket, 0)) == 1
    return sockets


async def lose_b(sockets: list[Socket]) -> None:
    await sockets[1].close()
    assert await receive(sockets[0]) == messages.Leave(round=0)
    await leaves(sockets[0], 0, "worker:0")


def of(served: Served, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(served.log) if event["event"] == kind]
