"""Measures what the link between neighbouring workers gives at most: raw TCP, both directions.

A ring is bound by just this: each worker sends to the next one while it hears from the one before.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

CONNECT_SECONDS = 20.0
BYTES = 64 << 20
TIMES = 3
_CHUNK = 1 << 20


def bytes_per_second(listening: socket.socket, host: str, port: int) -> float:
    """Sends to the next worker and receives from the one before, at the same time.

    `listening` is this worker's port, whose address the worker before knows; `host` and `port` are
    the next worker's.

    Returns:
      Bytes per second in each direction, of the fastest time.

    Raises:
      OSError: a neighbour cannot be reached, or has gone.
    """
    listening.settimeout(CONNECT_SECONDS)
    with contextlib.ExitStack() as stack:
        after = stack.enter_context(socket.create_connection((host, port), CONNECT_SECONDS))
        before = stack.enter_context(listening.accept()[0])
        for end in (after, before):
            end.settimeout(CONNECT_SECONDS)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return BYTES / min(_exchange(after, before) for _ in range(TIMES))


def _exchange(after: socket.socket, before: socket.socket) -> float:
    out, into = memoryview(bytes(_CHUNK)), memoryview(bytearray(_CHUNK))
    broken: list[OSError] = []

    def send() -> None:
        try:
            for _ in range(BYTES // _CHUNK):
                after.sendall(out)
        except OSError as error:
            broken.append(error)

    began = time.perf_counter()
    sending = threading.Thread(target=send)
    sending.start()
    try:
        left = BYTES
        while left:
            count = before.recv_into(into[: min(left, _CHUNK)])
            if not count:
                raise ConnectionError("the worker before has left")
            left -= count
    finally:
        sending.join()
    if broken:
        raise broken[0]
    return time.perf_counter() - began
