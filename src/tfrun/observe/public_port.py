"""Protects a port that strangers reach: few at a time, not for long, and no log lines of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import weakref
from collections.abc import Callable, Collection, Sequence

from aiohttp import web

HELLO_SECONDS = 10.0  # for whoever has connected to show that he belongs here
BACKLOG = 1024  # a thousand agents come at once
MOST_STRANGERS = 1024  # and no more than a share of the files that this process may open
SHARE = 4
PAUSE = 0.1  # while no file is free

Admits = Callable[[web.Request], bool]

_log = logging.getLogger(__name__)
# What aiohttp says of each malformed request, with a traceback: anybody could fill a disk with it.
_unheard = logging.Logger(f"{__name__}.strangers", logging.CRITICAL + 1)


class Port:
    """Serves routes over HTTP. Whoever is not admitted within seconds is hung up on.

    Attributes:
      number: the port's, once it listens.
    """

    def __init__(
        self,
        routes: Sequence[web.RouteDef],
        admits: Admits | None = None,
        *,
        refusal: str | None = None,
        open_to_all: Collection[str] = (),
        max_bytes: int = 1 << 20,
    ) -> None:
        """Args:
        routes: what is served.
        admits: whether a request shows that it may ask; by default each may, but none may stay.
        refusal: what the others are told.
        open_to_all: paths that need no admission.
        max_bytes: of a request's body.
        """
        self._admits, self._refusal, self._open = admits, refusal, open_to_all
        app = web.Application(middlewares=[self._let_in], client_max_size=max_bytes)
        app.router.add_routes(routes)
        self._runner = web.AppRunner(app, access_log=None, logger=_unheard, shutdown_timeout=0.5)
        # The oldest first, each with its connection and its time.
        self._strangers: dict[web.RequestHandler, tuple[socket.socket, asyncio.TimerHandle]] = {}
        self._accepting: list[asyncio.Task[None]] = []
        self._greeting: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._failed: set[str] = set()
        self.number = 0

    async def start(self, host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listens on `host`; port 0 is any free one.

        Raises:
          OSError: the address is not this machine's, or the port is taken.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        # Only bound by asyncio: without a free file it would log 1,024 tracebacks a second.
        bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        self._listening = [one.dup() for one in bound.sockets]
        bound.close()
        for listening in self._listening:
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._accepting.append(loop.create_task(self._accept(listening, tls)))
        self.number = self._listening[0].getsockname()[1]

    async def close(self) -> None:
        """Listens no more, and hangs up on all."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        for handler in list(self._strangers):
            self._hang_up(handler)
        await asyncio.gather(*self._greeting, return_exceptions=True)  # handshakes, which fail now
        await self._runner.cleanup()
        # With TLS, who has been said goodbye to is still waited for; the event loop may end now.
        for transport in list(self._transports):
            transport.abort()
        for _ in range(2):  # turns of the loop, in which a transport and that below it close
            await asyncio.sleep(0)

    # --- connections ------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(PAUSE)  # whoever calls waits in the kernel's queue
                continue
            while len(self._strangers) >= _most_strangers():
                self._hang_up(next(iter(self._strangers)))  # those who belong here are quick
            assert self._runner.server
            handler = self._runner.server()
            timer = loop.call_later(HELLO_SECONDS, self._hang_up, handler)
            self._strangers[handler] = connection, timer
            greeting = loop.create_task(self._greet(handler, connection, tls))
            self._greeting.add(greeting)
            greeting.add_done_callback(self._greeting.discard)
            await asyncio.sleep(0)  # the others' turn

    async def _greet(
        self, handler: web.RequestHandler, connection: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        loop = asyncio.get_running_loop()
        wait = HELLO_SECONDS if tls else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: handler, connection, ssl=tls, ssl_handshake_timeout=wait
            )
            self._transports.add(transport)
        except OSError:  # a handshake that failed
            self._forget(handler)

    def _forget(self, handler: web.RequestHandler) -> socket.socket | None:
        connection, timer = self._strangers.pop(handler, (None, None))
        if timer:
            timer.cancel()
        return connection

    def _hang_up(self, handler: web.RequestHandler) -> None:
        connection = self._forget(handler)
        if handler.transport is not None:
            handler.transport.abort()
        elif connection:  # it has gone, or its handshake is not over
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # --- requests ---------------------------------------------------------------------------

    @web.middleware
    async def _let_in(self, request: web.Request, handler) -> web.StreamResponse:
        if self._admits is None or request.path in self._open:
            answer = await handler(request)
            answer.force_close()
            return answer
        if not self._admits(request):
            refused = web.Response(status=401, text=self._refusal)
            refused.force_close()
            return refused
        self._forget(request.protocol)
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception:
            if request.path not in self._failed and len(self._failed) < 10:
                self._failed.add(request.path)  # once: a page asks each second
                _log.exception("%s %s failed", request.method, request.path)
            raise


def _most_strangers() -> int:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MOST_STRANGERS
    return max(1, min(MOST_STRANGERS, files // SHARE))
