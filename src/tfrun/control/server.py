"""The job's one port: agents speak WebSocket here, with the job's token."""

from __future__ import annotations

import asyncio
import hmac
import logging

from aiohttp import WSMsgType, web

from tfrun.control import messages
from tfrun.control.controller import Controller
from tfrun.job.errors import TfrunError

HELLO_SECONDS = 10.0

_log = logging.getLogger(__name__)


class ControlServer:
    """Serves a controller on a TCP port; `port` is set once it listens."""

    def __init__(self, controller: Controller, token: str) -> None:
        self._controller, self._token = controller, token
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int = 0) -> None:
        """Listens on `host`; port 0 is any free one."""
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_get("/agent", self._agent)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _authenticate(self, request: web.Request, handler) -> web.StreamResponse:
        # aiohttp reads bytes that are no UTF-8 as lone surrogates.
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise web.HTTPUnauthorized
        return await handler(request)

    async def _agent(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=messages.MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        outbox: asyncio.Queue[messages.Message] = asyncio.Queue()
        member, reason = None, "its connection closed"
        writing: asyncio.Task[None] | None = None
        try:
            hello = messages.decode(await socket.receive_str(timeout=HELLO_SECONDS))
            if not isinstance(hello, messages.Hello):
                raise TfrunError("TFRUN-302", "the first message was no hello")
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
                self._controller.receive(member, messages.decode(frame.data))
        except (TfrunError, TypeError, asyncio.TimeoutError) as error:
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
    async def _write(
        socket: web.WebSocketResponse, outbox: asyncio.Queue[messages.Message]
    ) -> None:
        try:
            while True:
                await socket.send_str(messages.encode(await outbox.get()))
        except ConnectionError:
            pass  # the reading side notices and tells the controller
