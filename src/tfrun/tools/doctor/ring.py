"""A small all-reduce between machines, to see what the network gives: a ring over TCP.

In W - 1 steps each machine sends a W-th part of its vector to the next one and adds what comes
from the one before; in W - 1 more the sums go round (Patarasuk and Yuan 2009).
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import numpy as np

CONNECT_SECONDS = 10.0
BACKLOG = 64


class Ring:
    """This machine's place in rings: one listening port for all of them."""

    def __init__(self) -> None:
        self._listening: socket.socket | None = None

    def listen(self) -> int:
        """Opens the port, on all interfaces, and returns it."""
        if self._listening is None:
            self._listening = socket.create_server(("0.0.0.0", 0), backlog=BACKLOG)
        return self._listening.getsockname()[1]

    def close(self) -> None:
        """Closes the port."""
        if self._listening is not None:
            self._listening.close()

    def time_sum(
        self, *, number: str, rank: int, world: int, address: str, port: int, count: int, times: int
    ) -> dict[str, Any]:
        """Sums a vector with the other machines.

        Args:
          number: of this ring, the same on all machines; of 8 characters.
          rank: this machine's number.
          world: how many machines.
          address: of the next machine.
          port: of the next machine.
          count: float32 numbers of the vector.
          times: how often.

        Returns:
          "seconds": of the fastest time; "right": the sum is.
        """
        after, before = self._meet(number, address, port)
        seconds, right = float("inf"), True
        with after, before:
            for _ in range(times + 1):  # the first one warms up
                parts = np.array_split(np.full(count, rank + 1, np.float32), world)
                began = time.perf_counter()
                _all_reduce(parts, rank, after, before)
                seconds = min(seconds, time.perf_counter() - began)
                expected = world * (world + 1) / 2
                right = right and all(bool((part == expected).all()) for part in parts)
        return {"seconds": seconds, "right": right}

    def _meet(self, number: str, address: str, port: int) -> tuple[socket.socket, socket.socket]:
        assert self._listening is not None
        after = socket.create_connection((address, port), CONNECT_SECONDS)
        after.sendall(number.encode())
        self._listening.settimeout(CONNECT_SECONDS)
        while True:  # what `connect` has left is closed already, and says nothing
            before, _ = self._listening.accept()
            before.settimeout(CONNECT_SECONDS)
            if _read(before, len(number)) == number.encode():
                break
            before.close()
        for end in (after, before):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return after, before


def _all_reduce(
    parts: list[np.ndarray], rank: int, after: socket.socket, before: socket.socket
) -> None:
    world = len(parts)
    for step in range(2 * (world - 1)):
        out, into = parts[(rank - step) % world], parts[(rank - step - 1) % world]
        data = bytearray(into.nbytes)
        sending = threading.Thread(target=after.sendall, args=(out.tobytes(),))
        sending.start()
        _fill(before, memoryview(data))
        sending.join()
        came = np.frombuffer(data, into.dtype)
        if step < world - 1:
            into += came
        else:
            into[:] = came


def _fill(source: socket.socket, into: memoryview) -> None:
    while len(into):
        count = source.recv_into(into)
        if not count:
            raise ConnectionError("the machine before has left the ring")
        into = into[count:]


def _read(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := source.recv(count - len(data))):
        data += more
    return data
