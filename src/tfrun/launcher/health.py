"""Answers health checks, as Kubernetes makes them of its pods."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

from tfrun.cluster.pods import HEALTH_PORT
from tfrun.control.server import HEALTH
from tfrun.job.errors import UsageError
from tfrun.launcher.prestarted.group import ANY_INTERFACE
from tfrun.observe.public_port import Port


@contextlib.asynccontextmanager
async def served(port: int, shows: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Answers at `/healthz` on the port, on all interfaces; on none with port 0.

    Args:
      port: the port.
      shows: the certificate that it shows; None is without TLS.

    Raises:
      UsageError: TFRUN-212 when the port cannot be listened on.
    """
    if not port:
        yield
        return
    listening = Port([web.get(HEALTH, _ok)])
    try:
        try:
            await listening.start(ANY_INTERFACE, port, shows)
        except OSError as error:
            what = f"port {port} cannot be listened on: {error.strerror}"
            raise UsageError("TFRUN-212", what, where=HEALTH_PORT) from None
        yield
    finally:
        await listening.close()


async def _ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")
