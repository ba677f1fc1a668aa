"""Network addresses of tasks: `host:port`, with IPv6 hosts in brackets."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from tfrun.job.errors import UsageError

# RFC 1123 labels; underscores are no part of it, but Docker and Kubernetes names have them.
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_HOST = 253
_MAX_PORT = 65535
_EXPECTED = 'an address like "host:2222", "10.0.0.1:2222" or "[fd00::1]:2222"'


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a task listens.

    Attributes:
      host: a name, an IPv4 address or an IPv6 address (without brackets).
      port: 1 to 65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def identity(self) -> tuple[str, int]:
        """Equal for two addresses that are certainly the same place.

        TensorFlow's server binds all interfaces, so every loopback name with the same port is
        one place: localhost, 127.0.0.1, 127.0.1.1, ::1.
        """
        host = self.host.lower().rstrip(".")
        ip = ip_of(host)
        if host == "localhost" or (ip is not None and ip.is_loopback):
            return ("localhost", self.port)
        return (ip.compressed if ip is not None else host, self.port)


def parse_address(text: object, *, where: str) -> Address:
    """Reads "host:port".

    Args:
      text: what stands there; anything but a string is refused.
      where: the place to name in the error, for example "TF_CONFIG cluster.worker[1]".

    Raises:
      UsageError: TFRUN-204 when it is no address that a peer can connect to.
    """

    def refuse(problem: str, fix: str = "") -> UsageError:
        return UsageError(
            "TFRUN-204", f"{shown(text)} {problem}", where=where, expected=_EXPECTED, fix=fix
        )

    if not isinstance(text, str):
        raise refuse("is not a string")
    if not text:
        raise refuse("is empty")
    if "://" in text:
        raise refuse("has a scheme", "Leave out everything up to and including ://")
    if text != text.strip():
        raise refuse("has white space around it")
    host, port_text = _split(text, refuse)
    port = _parse_port(port_text, refuse)
    _check_host(host, bracketed=text.startswith("["), refuse=refuse)
    return Address(host=host, port=port)


def shown(value: object, limit: int = 80) -> str:
    """Returns the value as an error message quotes it: Python's notation, cut to `limit`."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _split(text: str, refuse) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise refuse("has no closing bracket")
        if not rest.startswith(":"):
            raise refuse("has no port")
        return host, rest[1:]
    if text.count(":") > 1:
        raise refuse("is an IPv6 address without brackets, or has two ports")
    host, colon, port = text.rpartition(":")
    if not colon:
        raise refuse("has no port")
    return host, port


def _parse_port(text: str, refuse) -> int:
    if not text:
        raise refuse("has no port")
    if text.strip("0") == "":
        # Port 0 means "any": the peers could not know which one it became.
        raise refuse("has port 0", "Give each task a fixed port")
    if not _PORT.fullmatch(text):
        raise refuse(f"has a port that is not a number from 1 to {_MAX_PORT}")
    if int(text) > _MAX_PORT:
        raise refuse(f"has a port over {_MAX_PORT}")
    return int(text)


def _check_host(host: str, *, bracketed: bool, refuse) -> None:
    if not host:
        raise refuse("has no host")
    ip = ip_of(host)
    if ip is not None and ip.is_unspecified:
        raise refuse(
            "is the address of all interfaces, to which no other machine can connect",
            "Give the host's name or its own address",
        )
    if bracketed:
        if ip is None or ip.version != 6:
            raise refuse("has brackets around something that is not an IPv6 address")
        return
    if ip is not None:
        return
    if is_broken_ipv4(host):
        raise refuse("has an IPv4 address that is not four numbers from 0 to 255")
    labels = host.removesuffix(".").split(".")
    if len(host) > _MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise refuse("has a host that is not a host name (RFC 1123)")


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the IP address that a text is; None when it is none."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_broken_ipv4(host: str) -> bool:
    """True for "10.0.1" and "256": resolvers read them as 10.0.0.1 and 0.0.1.0, never meant so."""
    return not host.replace(".", "").strip("0123456789") and ip_of(host) is None
