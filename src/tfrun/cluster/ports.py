"""Reserves ports that no other job gets while this one lives. The only file of the room with I/O.

A reservation is a bound socket that does not listen. On Linux another bind to "any port", an
outgoing connection and a bind without SO_REUSEADDR all avoid it, but TensorFlow's server, which
sets SO_REUSEADDR, can bind the very port and listen. So there is no gap between choosing a port
and using it.
"""

from __future__ import annotations

import socket
import sys

from tfrun.job.errors import TfrunError, UsageError

# On BSD and macOS a second socket must not bind a port that is bound already, listening or not.
_SHARES_BOUND_PORT = sys.platform == "linux"


class PortReservation:
    """Some free TCP ports of this machine, on all interfaces, held until `close`.

    Attributes:
      ports: the port numbers, all different.
    """

    def __init__(self, count: int) -> None:
        """Reserves `count`.

        Raises:
          TfrunError: TFRUN-208 when the machine has not that many.
        """
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._sockets.append(_bind(0))
        except OSError as error:
            self.close()
            raise TfrunError(
                "TFRUN-208",
                f"{count} free ports could not be reserved: {error.strerror or error}",
                where="this machine",
                fix="End jobs that hold many ports or sockets",
            ) from error
        self.ports: tuple[int, ...] = tuple(held.getsockname()[1] for held in self._sockets)

    def release_for_use(self) -> None:
        """To be called just before the servers start: lets go where two sockets cannot share."""
        if not _SHARES_BOUND_PORT:
            self.close()

    def close(self) -> None:
        """Gives the ports back. Servers that listen on them are not disturbed."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> PortReservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_free(port: int, *, where: str = "") -> None:
    """Refuses a port on which TensorFlow's server could not listen.

    `where` is the place that names the port, for the error; by default the port itself.

    Raises:
      UsageError: TFRUN-208, with the name of the process that has the port when the system says.
    """
    for family in _families():
        try:
            with _bind(port, family) as probe:
                probe.listen(1)  # two may bind with SO_REUSEADDR, only one may listen
        except OSError as error:
            holder = _listener(port)
            raise UsageError(
                "TFRUN-208",
                f"port {port} cannot be used: {error.strerror or error}"
                + (f"; {holder} listens there" if holder else ""),
                where=where or f"port {port}",
                expected="a free port",
                fix="End that process, or use another port",
            ) from error


def _families() -> tuple[socket.AddressFamily, ...]:
    try:
        _bind(0, socket.AF_INET6).close()
    except OSError:
        return (socket.AF_INET,)
    return (socket.AF_INET, socket.AF_INET6)


def _bind(port: int, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    """Returns a socket bound to the port on all interfaces; it does not listen."""
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind(("", port))
    except BaseException:
        held.close()
        raise
    return held


def _listener(port: int) -> str | None:
    """Returns "name (pid 123)" of the process that listens on the port, if that is told."""
    import psutil  # not above: every start of tfrun imports this file

    try:
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass  # other users' processes are hidden, and on macOS all are
    return None
