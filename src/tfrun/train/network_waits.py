"""Measures how long the network holds up this process's sending, as Linux's TCP tells.

In a sum all workers wait for the slowest link, so no worker's own clocks can tell a narrow network
from a peer that comes late. The kernel can: it keeps, of each connection, how fast its last
packets were acknowledged (`tcpi_delivery_rate`), and for how long anything was on its way
(`tcpi_busy_time`) without the receiver's being full (`tcpi_rwnd_limited`); see linux/tcp.h and
net/ipv4/tcp_rate.c. What a second's bytes need at that rate is the network's time. Whose collective
it is does not matter: the host collective's, TensorFlow's ring and NCCL's sockets are all
connections of this process.

Only connections to the cluster's other machines count.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
import ipaddress
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfrun.cluster.tf_config import parse_tf_config
from tfrun.job.errors import TfrunError

SAMPLE_SECONDS = 0.05  # between two looks at the rates
# The best rate of late counts, because a busy peer acknowledges late at times: of so many seconds,
# and, where steps take long, of so many looks.
LATE_SECONDS, LATE_LOOKS = 2.0, 3
LOOK_SECONDS = 5.0  # between two looks for connections
MOST = 16  # connections
MOST_HOSTS = 256  # whose names are looked up
_ESTABLISHED = 1
_INFO_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What the kernel says of a connection since it began.

    Attributes:
      bytes: acknowledged by the peer.
      rate: bytes a second of the last ones; 0 before the first.
      seconds: for which something was on its way and the receiver had room.
    """

    bytes: int
    rate: int
    seconds: float


def read_info(info: bytes) -> Sent | None:
    """Reads Linux's `struct tcp_info`; None of one that is not connected, or of an old kernel."""
    if len(info) < 192 or info[0] != _ESTABLISHED:
        return None
    (acked,) = struct.unpack_from("Q", info, 120)
    rate, busy, full = struct.unpack_from("QQQ", info, 160)
    return Sent(bytes=acked, rate=rate, seconds=max(0, busy - full) / 1e6)


def held_up(before: Sent, now: Sent, rate: int) -> float:
    """Returns the seconds that the network took for what was sent between two looks.

    Args:
      before: at the first look.
      now: at the second.
      rate: the best one of late, bytes a second.
    """
    if rate <= 0:
        return 0.0
    return max(0.0, min((now.bytes - before.bytes) / rate, now.seconds - before.seconds))


@dataclass
class _Connection:
    before: Sent
    now: Sent
    rates: deque[tuple[float, int]] = field(default_factory=deque)  # when, bytes a second

    def take(self, found: Sent, now: float) -> None:
        """Takes what a look has found."""
        self.now = found
        self.rates.append((now, found.rate))
        while len(self.rates) > LATE_LOOKS and now - self.rates[0][0] > LATE_SECONDS:
            self.rates.popleft()

    @property
    def rate(self) -> int:
        """The best one of late."""
        return max((rate for _, rate in self.rates), default=0)


class Network:
    """The connections of this process to the cluster's other machines, by their addresses."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._buffer = ctypes.create_string_buffer(_INFO_BYTES)
        self._connections: dict[tuple[int, str], _Connection] = {}
        self._sampled = self._looked = 0.0

    def sample(self) -> None:
        """Looks how fast the connections are; a few microseconds, and mostly nothing."""
        if self._libc is None or not self._hosts:
            return
        now = time.monotonic()
        if now - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = now
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._find()
        for key, connection in list(self._connections.items()):
            found = self._info(key[0])
            if found is None or found.bytes < connection.now.bytes:  # closed, or another one
                del self._connections[key]
            else:
                connection.take(found, now)

    def seconds(self) -> tuple[float, str] | None:
        """Returns how long the network took since the last call, and for sending to which address.

        Of the slowest connection: they send at the same time. None where there is none.
        """
        self.sample()
        found = []
        for (_, peer), connection in self._connections.items():
            found.append((held_up(connection.before, connection.now, connection.rate), peer))
            connection.before = connection.now
        return max(found, default=None)

    def _find(self) -> None:
        """Keeps the connections through which most has been sent."""
        found = []
        for path in Path("/proc/self/fd").iterdir():
            fd = int(path.name)
            if (info := self._info(fd)) and (peer := self._peer(fd)) in self._hosts:
                found.append(((fd, peer), info))
        known, self._connections = self._connections, {}
        for key, info in heapq.nlargest(MOST, found, key=lambda pair: pair[1].bytes):
            self._connections[key] = known.get(key) or _Connection(info, info)

    def _info(self, fd: int) -> Sent | None:
        # Not through `socket.socket(fileno=fd)`, which may change how others' sockets block.
        size = ctypes.c_uint32(_INFO_BYTES)
        assert self._libc
        buffer = self._buffer
        if self._libc.getsockopt(fd, socket.IPPROTO_TCP, socket.TCP_INFO, buffer, _ref(size)):
            return None
        return read_info(buffer.raw[: size.value])

    def _peer(self, fd: int) -> str:
        size = ctypes.c_uint32(_INFO_BYTES)
        assert self._libc
        if self._libc.getpeername(fd, self._buffer, _ref(size)):
            return ""
        return address_of(self._buffer.raw[: size.value])


_ref = ctypes.byref


def address_of(name: bytes) -> str:
    """Returns the IP address in a `sockaddr`; "" for other kinds."""
    (family,) = struct.unpack_from("H", name) if len(name) >= 2 else (0,)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, name[4:8])
    if family == socket.AF_INET6:
        address = ipaddress.IPv6Address(name[8:24])
        return str(address.ipv4_mapped or address)
    return ""


def other_hosts(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Returns the addresses of the cluster's machines but this one, by TF_CONFIG."""
    return _others(environment.get("TF_CONFIG") or "{}")


@functools.lru_cache(maxsize=1)  # names are looked up once, not at each `fit`
def _others(text: str) -> frozenset[str]:
    try:
        told = parse_tf_config(text)
    except TfrunError:
        return frozenset()
    cluster, mine = told.cluster, told.task
    if mine is None or mine not in cluster:
        return frozenset()
    names = dict.fromkeys(cluster.address(task).host.strip("[]") for task in cluster.tasks())
    here = _addresses(cluster.address(mine).host.strip("[]"))
    found = {ip for name in list(names)[:MOST_HOSTS] for ip in _addresses(name)}
    return frozenset(ip for ip in found - here if not ipaddress.ip_address(ip).is_loopback)


def _addresses(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
