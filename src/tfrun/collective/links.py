"""Connections to other workers, and how long a silent one is waited for."""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfrun.collective.errors import PeerGone

LOOK_SECONDS = 1.0
LOOKS = 3  # after which a wait is told of
# A dead machine or link, by the kernel; TensorFlow's own survives a link that is down for 5 s.
IDLE_SECONDS, PROBE_SECONDS, PROBES = 3, 1, 5
UNSENT_MILLISECONDS = 8000

Check = Callable[[int], str]


@dataclass(eq=False)
class Link:
    """A connection to a peer.

    Attributes:
      rank: the peer's.
      socket: connected; this takes it over.
      sent: bytes so far.
    """

    rank: int
    socket: socket.socket
    sent: int = 0

    def __post_init__(self) -> None:
        self.socket.setblocking(False)
        if self.socket.family in (socket.AF_INET, socket.AF_INET6):
            _tune(self.socket)

    def shut(self) -> None:
        """Ends it for both sides and for a thread that waits in it; from any thread."""
        with contextlib.suppress(OSError):  # the peer was faster
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shut()
        self.socket.close()

    def send(self, data: memoryview) -> int:
        """Sends what there is room for; returns how many bytes."""
        try:
            count = self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerGone(self.rank, f"has gone: {error.strerror}") from None
        self.sent += count
        return count

    def receive(self, into: memoryview) -> int:
        """Receives what has come; returns how many bytes, 0 when nothing has."""
        try:
            count = self.socket.recv_into(into)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerGone(self.rank, f"has gone: {error.strerror}") from None
        if count == 0:
            raise PeerGone(self.rank, "has gone: it closed the connection")
        return count


def _tune(tcp: socket.socket) -> None:
    # The buffers' sizes are left to the kernel, which lets them grow with the link.
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_SECONDS)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNSENT_MILLISECONDS)


@dataclass(eq=False)
class Patience:
    """How long to wait for a peer that says nothing.

    Attributes:
      check: is asked about a silent peer's rank once a second, and says why it counts as gone, or
        "": it is alive, and only late. None: nobody can tell.
      timeout: seconds after which a silent peer is gone whatever `check` says; None is never.
      tell: is called in a wait of some seconds, and again each time that it lasts twice as long.
    """

    check: Check | None = None
    timeout: float | None = None
    tell: Callable[[], None] = lambda: None

    def wait(self, reading: Sequence[Link], writing: Sequence[Link]) -> None:
        """Waits until there is something to receive, or room to send.

        Raises:
          PeerGone: a peer that is waited for is.
        """
        poll = select.poll()
        for link in reading:
            poll.register(link.socket, select.POLLIN | (select.POLLOUT if link in writing else 0))
        for link in writing:
            if link not in reading:
                poll.register(link.socket, select.POLLOUT)
        silent = [link.rank for link in reading or writing]
        began, looks, tells = time.monotonic(), 0, LOOKS
        while not poll.poll(LOOK_SECONDS * 1000):
            for rank in silent:
                if self.check and (reason := self.check(rank)):
                    raise PeerGone(rank, reason)
            if self.timeout is not None and time.monotonic() - began > self.timeout:
                raise PeerGone(silent[0], f"has said nothing for {self.timeout:g} s")
            looks += 1
            if looks == tells:
                self.tell()
                tells *= 2
