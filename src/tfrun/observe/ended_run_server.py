"""Serves the page of a run that has ended, on a port of its own."""

from __future__ import annotations

from tfrun.observe.access import REFUSED
from tfrun.observe.page_server import WatchRoutes
from tfrun.observe.public_port import Port


class PageServer:
    """Serves a run on a TCP port; `port` is set once it listens."""

    def __init__(self, watch: WatchRoutes) -> None:
        self._watch = watch
        self._port = Port(watch.routes(), watch.access.admits, refusal=REFUSED)

    @property
    def port(self) -> int:
        return self._port.number

    async def start(self, host: str, port: int = 0) -> None:
        """Listens on `host`; port 0 is any free one.

        Raises:
          OSError: the address is not this machine's, or the port is taken.
        """
        await self._port.start(host, port)

    async def close(self) -> None:
        await self._watch.close()
        await self._port.close()
