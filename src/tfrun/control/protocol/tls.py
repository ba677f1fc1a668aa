"""TLS of the control port."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tfrun.job import control_contact
from tfrun.job.errors import UsageError

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What a control port shows.

    Attributes:
      cert: file of the certificate, and of those that it hangs on, in PEM.
      key: file of its private key, without a password.
    """

    cert: str
    key: str

    @cached_property
    def pem(self) -> str:
        """The certificate itself, which comes first in its file, in PEM."""
        match = _CERTIFICATE.search(Path(self.cert).read_text(encoding="ascii", errors="replace"))
        assert match  # `stated` has looked
        return match.group()

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The server's side.

        Raises:
          UsageError: TFRUN-105.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            raise UsageError(
                "TFRUN-105",
                f"{self.cert!r:.200} and {self.key!r:.200} are not a certificate and its key: "
                f"{error}",
                where="--tls-cert, --tls-key",
                expected="two files in PEM, the key without a password",
            ) from None
        return context


def stated(cert: str | None, key: str | None) -> Certificate | None:
    """Returns the certificate that --tls-cert and --tls-key name; None without them.

    Raises:
      UsageError: TFRUN-107 when there is only one of them, TFRUN-105 when they are none.
    """
    if bool(cert) != bool(key):
        fix = "Give both, or none"
        raise UsageError("TFRUN-107", "--tls-cert and --tls-key belong together", fix=fix)
    if not (cert and key):
        return None
    found = Certificate(cert=cert, key=key)
    _ = found.context  # what is wrong with it is to be known now
    return found


def pem_of(certificate: Certificate | None) -> str:
    """Returns a certificate in PEM; "" is without TLS."""
    return certificate.pem if certificate else ""


def only(pem: str) -> dict[str, Any] | None:
    """Returns what `trusting` takes for one certificate, whatever the name in it.

    Args:
      pem: the certificate, in PEM; "" is without TLS.
    """
    return {"only": pem} if pem else None


def trusting(tls: Mapping[str, Any] | None) -> ssl.SSLContext | bool:
    """Returns the client's side, as aiohttp takes it.

    Args:
      tls: "authority": file of the certificates to trust in PEM, "" for the system's; the one that
        is shown has to be for the name that is connected to. Or "only": the one certificate to
        trust, in PEM, under whatever name. None is the system's.

    Raises:
      UsageError: TFRUN-105 when the file is none of certificates.
    """
    if not tls:
        return True
    if pem := tls.get("only"):
        return control_contact.trusting(pem)
    try:
        return ssl.create_default_context(cafile=tls["authority"] or None)
    except (OSError, ValueError) as error:
        raise UsageError(
            "TFRUN-105",
            f"{tls['authority']!r:.200} has no certificates: {error}",
            where="--tls-ca",
            expected="a file in PEM",
        ) from None


def _no_password() -> str:
    raise ValueError("the key has a password")
