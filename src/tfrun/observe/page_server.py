"""Serves what can be watched on a port of its own, for a run that has ended."""

from __future__ import annotations

from aiohttp import web

from tfrun.observe.access import REFUSED
from tfrun.observe.watch import Watch


class PageServer:
    """Serves a run on a TCP port; `port` is set once it listens."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int = 0) -> None:
        """Listens on `host`; port 0 is any free one.

        Raises:
          OSError: the address is not this machine's, or the port is taken.
        """
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_routes(self._watch.routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        await self._watch.close()
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _authenticate(self, request: web.Request, handler) -> web.StreamResponse:
        if not self._watch.access.admits(request):
            refused = web.Response(status=401, text=REFUSED)
            refused.force_close()
            return refused
        return await handler(request)
