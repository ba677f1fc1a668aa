"""The job's control port: agents connect over WebSocket, with the job's token."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence

from aiohttp import WSMsgType, web

from tfrun.control.controller import Controller
from tfrun.control.protocol import messages, wire
from tfrun.job.errors import TfrunError
from tfrun.job.version import __version__
from tfrun.observe.access import REFUSED, shows_token
from tfrun.observe.page_server import WatchRoutes
from tfrun.observe.public_port import Port

HELLO_SECONDS = 10.0
HEALTH = "/healthz"
MAX_ENROL_BYTES = 1 << 16

# Gets what a machine that is to join by hand has said, and the address it came from.
Desk = Callable[[wire.Message, str], wire.Message]

_log = logging.getLogger(__name__)


class ControlServer:
    """Serves a controller on a TCP port; `port` is set once it listens."""

    def __init__(
        self,
        controller: Controller,
        token: str,
        desk: Desk | None = None,
        *,
        watch: WatchRoutes | None = None,
        more: Sequence[web.RouteDef] = (),
    ) -> None:
        """Args:
        controller: the controller.
        token: the job's secret.
        desk: answers machines that are to join by hand; by default none can.
        watch: shows people the job; by default nobody can look.
        more: routes that `watch.access` decides about as well.
        """
        self._controller, self._token, self._desk = controller, token, desk
        self._watch = watch
        self._port = Port(
            [
                web.get("/agent", self._agent),
                web.get("/job", self._job),
                web.get(HEALTH, self._healthy),
                web.post("/join", self._join),
                *(watch.routes() if watch else ()),
                *more,
            ],
            self._admits,
            refusal=REFUSED if watch else None,
            open_to_all={HEALTH},  # Kubernetes has no token
            max_bytes=MAX_ENROL_BYTES,
        )

    @property
    def port(self) -> int:
        return self._port.number

    async def start(self, host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listens on `host`; port 0 is any free one.

        Raises:
          OSError: the address is not this machine's, or the port is taken.
        """
        await self._port.start(host, port, tls)

    async def close(self) -> None:
        if self._watch:
            await self._watch.close()
        await self._port.close()

    def _admits(self, request: web.Request) -> bool:
        # The token first: it opens everything, and agents are many.
        return shows_token(request.headers, self._token) or bool(
            self._watch and self._watch.access.admits(request)
        )

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _job(self, request: web.Request) -> web.StreamResponse:
        """What to run, for agents that somebody else has started."""
        return web.json_response({"version": __version__, "spec": self._controller.spec.to_json()})

    async def _join(self, request: web.Request) -> web.StreamResponse:
        """Answers a machine that is to join by hand: one message, one answer."""
        try:
            message = wire.decode((await request.read()).decode())
        except (TfrunError, UnicodeDecodeError) as error:
            # Another version's message, most likely: its sender is told so as far as it can be.
            reason = f"its message is not understood: {error}"
            answer: wire.Message = messages.Refused(code="TFRUN-302", reason=reason, over=False)
        else:
            if self._desk is None:
                raise web.HTTPNotFound
            answer = self._desk(message, request.remote or "")
        return web.Response(text=wire.encode(answer), content_type="application/json")

    async def _agent(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=wire.MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        outbox: asyncio.Queue[wire.Message] = asyncio.Queue()
        member, reason = None, "its connection closed"
        writing: asyncio.Task[None] | None = None
        try:
            first = await socket.receive(timeout=HELLO_SECONDS)
            if first.type is not WSMsgType.TEXT:
                raise TfrunError("TFRUN-302", f"a frame of type {first.type.name}")
            hello = wire.decode(first.data)
            if not isinstance(hello, messages.Hello):
                raise TfrunError("TFRUN-302", "the first message was not a hello")
            member = self._controller.joined(hello, outbox.put_nowait, request.remote)
            if member is None:
                raise TfrunError("TFRUN-302", f"no agent {hello.agent!r:.60} is expected")
            writing = asyncio.create_task(self._write(socket, outbox))
            async for frame in socket:
                if frame.type is WSMsgType.ERROR:
                    reason = f"its connection broke: {frame.data}"
                    break
                if frame.type is not WSMsgType.TEXT:
                    raise TfrunError("TFRUN-302", f"a frame of type {frame.type.name}")
                self._controller.receive(member, wire.decode(frame.data))
        except (TfrunError, asyncio.TimeoutError) as error:
            reason = str(error) or "it said nothing"
            _log.warning("connection from %s refused: %s", request.remote, reason)
        finally:
            if member:
                self._controller.disconnected(member, reason)
            if writing:
                writing.cancel()
            await socket.close()
        return socket

    @staticmethod
    async def _write(socket: web.WebSocketResponse, outbox: asyncio.Queue[wire.Message]) -> None:
        try:
            while True:
                await socket.send_str(wire.encode(await outbox.get()))
        except ConnectionError:
            pass  # the reading side notices and tells the controller
