"""The job's one port: agents speak WebSocket here, with the job's token."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence

from aiohttp import WSMsgType, web

import tfrun
from tfrun.control import messages, wire
from tfrun.control.controller import Controller
from tfrun.job.errors import TfrunError
from tfrun.observe.access import REFUSED, shows_token
from tfrun.observe.watch import Watch

HELLO_SECONDS = 10.0
HEALTH = "/healthz"
BACKLOG = 1024  # a thousand agents come at once
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
        watch: Watch | None = None,
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
        self._watch, self._more = watch, more
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._strangers: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self.port = 0

    async def start(self, host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listens on `host`; port 0 is any free one.

        Raises:
          OSError: the address is not this machine's, or the port is taken.
        """
        app = web.Application(middlewares=[self._authenticate], client_max_size=MAX_ENROL_BYTES)
        app.router.add_get("/agent", self._agent)
        app.router.add_get("/job", self._job)
        app.router.add_get(HEALTH, self._healthy)
        app.router.add_post("/join", self._join)
        app.router.add_routes([*(self._watch.routes() if self._watch else ()), *self._more])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        self._listening = listening = await asyncio.get_running_loop().create_server(
            self._connection,
            host,
            port,
            ssl=tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=HELLO_SECONDS if tls else None,
        )
        self.port = listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._listening:
            self._listening.close()
        if self._watch:
            await self._watch.close()
        for timer in self._strangers.values():
            timer.cancel()
        if self._runner:
            await self._runner.cleanup()

    def _connection(self) -> web.RequestHandler:
        """Takes a connection; whoever does not show the token soon is not listened to for ever."""
        assert self._runner and self._runner.server
        handler = self._runner.server()

        def send_away() -> None:
            if self._strangers.pop(handler, None) and handler.transport is not None:
                handler.transport.abort()

        loop = asyncio.get_running_loop()
        self._strangers[handler] = loop.call_later(HELLO_SECONDS, send_away)
        return handler

    @web.middleware
    async def _authenticate(self, request: web.Request, handler) -> web.StreamResponse:
        if request.path == HEALTH:
            return await handler(request)  # Kubernetes has no token
        # The token first: it opens everything, and agents are many.
        if not shows_token(request.headers, self._token) and not (
            self._watch and self._watch.access.admits(request)
        ):
            refused = web.Response(status=401, text=REFUSED if self._watch else None)
            refused.force_close()
            return refused
        if timer := self._strangers.pop(request.protocol, None):
            timer.cancel()
        return await handler(request)

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        answer = web.Response(text="ok")
        answer.force_close()
        return answer

    async def _job(self, request: web.Request) -> web.StreamResponse:
        """What to run, for agents that somebody else has started."""
        return web.json_response(
            {"version": tfrun.__version__, "spec": self._controller.spec.to_json()}
        )

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
                raise TfrunError("TFRUN-302", "the first message was no hello")
            self._controller.seen(hello.agent, request.remote)
            member = self._controller.joined(hello, outbox.put_nowait)
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
