"""Explains why a machine was not let in, and whether to try again. Pure."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp

from tfrun.cluster.start_order import why_not_reached
from tfrun.job.errors import TfrunError
from tfrun.launcher.waiting import Reason

WRONG_TOKEN = 401


def why_not_in(error: BaseException) -> Reason:
    """Reads what went wrong on the way to the control port."""
    cause = error
    for name in ("os_error", "certificate_error"):
        cause = getattr(error, name, None) or cause
    match cause:
        case TfrunError():
            return Reason(text=cause.what, permanent=True, code=cause.code, fix=cause.fix)
        case ssl.SSLCertVerificationError():
            return Reason(
                text=f"its certificate is not trusted: {cause.verify_message}",
                permanent=True,
                code="TFRUN-320",
                fix="Give the authority's certificate, or the server's own, with --tls-ca",
            )
        case aiohttp.ClientResponseError(status=status) if status == WRONG_TOKEN:
            return Reason(
                text="the token is wrong",
                permanent=True,
                code="TFRUN-320",
                fix="Copy the file that tfrun serve names, anew for each run directory",
            )
    return Reason(text=_passing(error, cause))


def _passing(error: BaseException, cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLError) or isinstance(error, aiohttp.ClientSSLError):
        return "it speaks no TLS"
    match cause:
        case aiohttp.ConnectionTimeoutError():
            return why_not_reached(asyncio.TimeoutError())
        case asyncio.TimeoutError():
            return "it accepts the connection and is silent"
        case aiohttp.ServerDisconnectedError() | ConnectionResetError():
            return "it accepts the connection and closes it; with TLS it needs --tls-ca"
        case aiohttp.ClientResponseError(status=status):
            return f"what listens there is not tfrun serve (HTTP {status})"
    return why_not_reached(cause) or f"{type(error).__name__}: {error}"[:200]
