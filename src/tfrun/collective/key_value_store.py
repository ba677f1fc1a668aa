"""A key-value store of a round's workers: strings in the memory of rank 0, which others set too."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable

from tfrun.collective.errors import PeerGone
from tfrun.collective.handshake import read

ANSWER_SECONDS = 30.0  # for an answer that should come at once: rank 0 may hold Python's lock
LONGEST_BYTES = 64 << 20  # of a message
_LENGTH = struct.Struct("!I")


class Store:
    """The values, on rank 0."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, name: str, value: str) -> None:
        with self._changed:
            self._values[name] = value
            self._changed.notify_all()

    def get(self, name: str, seconds: float) -> str | None:
        """Waits for a value; None when there is none after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._values, seconds)
            return self._values.get(name)

    def serve(self, connection: socket.socket) -> None:
        """Answers one worker until it hangs up."""
        connection.settimeout(None)
        with contextlib.suppress(OSError):
            while True:
                asked = json.loads(receive_message(connection))
                if "value" in asked:
                    self.set(asked["name"], asked["value"])
                    send_message(connection, b"null")
                else:
                    send_message(
                        connection, json.dumps(self.get(asked["name"], asked["seconds"])).encode()
                    )


class RemoteStore:
    """The same values, on the other workers; from any thread.

    Args:
      connect: connects with rank 0's store.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._idle: list[socket.socket] = []  # several: one thread may wait in `get`

    def set(self, name: str, value: str) -> None:
        self._ask({"name": name, "value": value}, 0.0)

    def get(self, name: str, seconds: float) -> str | None:
        return self._ask({"name": name, "seconds": seconds}, seconds)

    def _ask(self, asked: dict[str, str | float], seconds: float) -> str | None:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.settimeout(seconds + ANSWER_SECONDS)
            send_message(connection, json.dumps(asked).encode())
            answer = json.loads(receive_message(connection))
        except OSError as error:
            connection.close()
            raise PeerGone(0, f"has gone: {error}") from None
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Hangs up."""
        while self._idle:
            self._idle.pop().close()


def send_message(connection: socket.socket, data: bytes) -> None:
    """Sends bytes with their length before them."""
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(connection: socket.socket) -> bytes:
    """What the other side has given to `send_message`.

    Raises:
      OSError: the connection broke, or the message is longer than any of ours.
    """
    (length,) = _LENGTH.unpack(read(connection, _LENGTH.size))
    if length > LONGEST_BYTES:
        raise OSError(f"a message of {length} bytes")
    return read(connection, length)
