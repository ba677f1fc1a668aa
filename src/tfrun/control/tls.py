"""TLS of the control port."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from tfrun.job.errors import UsageError


def showing(cert: str, key: str) -> ssl.SSLContext:
    """Returns the server's side.

    Args:
      cert: file of the certificate, and of those that it hangs on, in PEM.
      key: file of its private key, without a password.

    Raises:
      UsageError: TFRUN-105.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise UsageError(
            "TFRUN-105",
            f"{cert!r:.200} and {key!r:.200} are no certificate and its key: {error}",
            where="--tls-cert, --tls-key",
            expected="two files in PEM, the key without a password",
        ) from None
    return context


def trusting(tls: Mapping[str, Any] | None) -> ssl.SSLContext | bool:
    """Returns the client's side, as aiohttp takes it.

    Args:
      tls: "authority": file of the certificates to trust in PEM, "" for the system's; "names":
        whether the certificate has to be for the name that is connected to. None is the system's.

    Raises:
      UsageError: TFRUN-105 when the file is none of certificates.
    """
    if not tls:
        return True
    try:
        context = ssl.create_default_context(cafile=tls["authority"] or None)
    except (OSError, ValueError) as error:
        raise UsageError(
            "TFRUN-105",
            f"{tls['authority']!r:.200} has no certificates: {error}",
            where="--tls-ca",
            expected="a file in PEM",
        ) from None
    context.check_hostname = tls["names"]
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")
