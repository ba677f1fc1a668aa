"""TLS of the control port: which certificates are trusted, and what the options have to be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from tfrun.cli.run import _certificate
from tfrun.control.protocol import tls
from tfrun.job.errors import UsageError
from tfrun.launcher import health
from tfrun.launcher.join.serve import Serving

AUTHORITY = ("-addext", "basicConstraints=critical,CA:TRUE")


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)


def certificate(folder: Path, name: str, *more: object) -> tls.Certificate:
    """Makes a certificate for a host name that nobody has."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2)
    subject = ("-subj", f"/CN={name}.invalid")
    openssl("req", "-x509", *made, *subject, *more, "-keyout", key, "-out", cert)
    return tls.Certificate(cert=str(cert), key=str(key))


def is_trusted(port: int, trust: Mapping[str, Any]) -> bool:
    context = tls.trusting(trust)
    assert isinstance(context, ssl.SSLContext)
    # Not by aiohttp's client, which leaves the end of a connection to an event loop that ends.
    with contextlib.closing(HTTPSConnection("127.0.0.1", port, context=context)) as asking:
        try:
            asking.request("GET", "/healthz")
            return asking.getresponse().read() == b"ok"
        except ssl.SSLCertVerificationError:
            return False


def answers(shown: tls.Certificate, port: int, *trusts: Mapping[str, Any]) -> list[bool]:
    async def run() -> list[bool]:
        async with health.served(port, shown.context):
            return [await asyncio.to_thread(is_trusted, port, trust) for trust in trusts]

    return asyncio.run(run())


def test_one_certificate_is_trusted_whatever_its_name_and_whoever_has_signed_it(
    tmp_path: Path, unused_port: int
) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    named = {"authority": own.cert}
    found = answers(own, unused_port, tls.only(own.pem), tls.only(other.pem), named)
    assert found == [True, False, False]  # the last, since the name is another
    authority = certificate(tmp_path, "authority", *AUTHORITY)
    by = ("-CA", authority.cert, "-CAkey", authority.key)
    signed = certificate(tmp_path, "signed", *by, "-addext", "basicConstraints=CA:FALSE")
    # As authorities deliver them: the certificate, and those that it hangs on.
    chain = Path(signed.cert)
    chain.write_text(chain.read_text() + Path(authority.cert).read_text())
    assert signed.pem.count("BEGIN CERTIFICATE") == 1
    sibling = certificate(tmp_path, "sibling", *by, "-addext", "basicConstraints=CA:FALSE")
    assert answers(signed, unused_port, tls.only(signed.pem)) == [True]
    assert answers(sibling, unused_port, tls.only(signed.pem)) == [False]


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("", 0)) as held:
        return held.getsockname()[1]


def test_old_protocols_are_refused(tmp_path: Path) -> None:
    assert certificate(tmp_path, "own").context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_what_is_no_certificate_is_said_before_anything_starts(tmp_path: Path) -> None:
    own = certificate(tmp_path, "own")
    on_a_network = Serving()
    assert _certificate(own.cert, own.key, on_a_network) == own
    assert _certificate(None, None, None) is None
    for cert, key, code in (
        (own.cert, None, "TFRUN-107: --tls-cert and --tls-key belong together"),
        (None, own.key, "TFRUN-107: --tls-cert and --tls-key belong together"),
        (own.cert, str(tmp_path / "absent"), "TFRUN-105"),
        (own.key, own.cert, "TFRUN-105"),
    ):
        with pytest.raises(UsageError, match=code):
            _certificate(cert, key, on_a_network)
    with pytest.raises(UsageError, match="TFRUN-107: the control port of this job is on no"):
        _certificate(own.cert, own.key, None)
