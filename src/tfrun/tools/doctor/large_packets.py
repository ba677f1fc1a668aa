"""Checks whether large packets get from one machine to another: some networks lose them silently.

A switch, a tunnel or a VPN whose MTU is smaller than that of the machines' interfaces drops what is
too large. Where no ICMP message comes back, connections are made and then stand still for ever
with the first large packet (a "black hole", RFC 2923). What shows it is a connection over which
some kilobytes are sent: the other side's kernel acknowledges them, whatever listens there.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import sys
import termios
import time

BYTES = 1 << 14  # fits into what a connection that nobody has accepted takes
LEAST_MTU = 576  # that every way has to carry (RFC 791)
MOST_MTU = 9216  # of what is called jumbo frames
STEP_SECONDS = 1.0  # an acknowledgement takes as long as a ping
POLL_SECONDS = 0.005
_HEADERS = {socket.AF_INET: 40, socket.AF_INET6: 60}  # of IP and TCP


def carries(address: str, port: int, seconds: float, mtu: int = 0) -> bool:
    """Whether data arrives there; what tells it is only to be had on Linux, elsewhere it does.

    Something listens there. Packets have no more than `mtu` bytes; 0 leaves it to the system.

    Raises:
      OSError: no connection is made.
    """
    if not sys.platform.startswith("linux"):
        return True
    family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as connection:
        if mtu:
            segment = mtu - _HEADERS[socket.AddressFamily(family)]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
        deadline = time.monotonic() + seconds
        connection.settimeout(seconds)
        connection.connect(where)
        try:
            connection.sendall(bytes(BYTES))
            while _unacknowledged(connection):
                if time.monotonic() > deadline:
                    _forget(connection)
                    return False
                time.sleep(POLL_SECONDS)
        except TimeoutError:
            return False
        except ConnectionError:
            pass  # it has hung up on what it did not understand: so it had come
    return True


def narrow(address: str, port: int, seconds: float, guess: int = 0) -> int:
    """Returns the MTU of a way that loses large packets; 0 where none is lost.

    Raises:
      OSError: no connection is made.
    """
    return 0 if carries(address, port, seconds) else mtu_of(address, port, guess)


def mtu_of(address: str, port: int, guess: int = 0) -> int:
    """Returns how large packets may be on a way that does not carry all; takes some seconds.

    Less than `LEAST_MTU` when not even those arrive.

    `guess` is what another way has had.
    """
    low, high = LEAST_MTU - 1, MOST_MTU
    with contextlib.suppress(OSError):
        if guess and carries(address, port, STEP_SECONDS, guess):
            if not carries(address, port, STEP_SECONDS, guess + 1):
                return guess
            low = guess + 1
    high = min(high, _own_mtu(address, port))
    while high - low > 1:
        middle = (low + high) // 2
        try:
            fits = carries(address, port, STEP_SECONDS, middle)
        except OSError:
            fits = False
        low, high = (middle, high) if fits else (low, middle)
    return low


def _own_mtu(address: str, port: int) -> int:
    """The packets that the system sends there, which do not arrive."""
    try:
        with socket.create_connection((address, port), STEP_SECONDS) as connection:
            segment = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
            options = 12  # time stamps, which the segment leaves room for
            return segment + options + _HEADERS[socket.AddressFamily(connection.family)]
    except OSError:
        return MOST_MTU


def _unacknowledged(connection: socket.socket) -> int:
    """How many bytes of what was sent have not been acknowledged (tcp(7), SIOCOUTQ)."""
    count = array.array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
    return count[0]


def _forget(connection: socket.socket) -> None:
    """Has the system not send the rest again and again after the connection is closed."""
    at_once = array.array("i", [1, 0])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once.tobytes())
