"""One worker asks another one for arrays, while all others do what they want: no collective.

Who is asked answers in a thread of its own, whatever its script does.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.errors import PeerGone
from tfrun.collective.key_value_store import receive_message, send_message

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 60.0  # without a byte
ANSWER_SECONDS = 30.0  # for who is asked to have what is asked for
_CHUNK = 4 << 20

# Is given a question; returns an answer in JSON, and arrays.
Answer = Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], Sequence[NDArray]]]


class Listener(Protocol):
    """What `Asking` needs of a `PeerListener`."""

    answers: Callable[[socket.socket], None] | None

    def ask(self, peer: int, address: tuple[str, int], seconds: float) -> socket.socket: ...


class Asking:
    """Asks other workers, and answers them.

    Args:
      listener: this worker's.
      addresses: of all workers' listeners, by rank.
    """

    def __init__(self, listener: Listener, addresses: Sequence[tuple[str, int]]) -> None:
        self._listener, self._addresses = listener, addresses
        self._answer: Answer | None = None
        self._can_answer = threading.Condition()
        listener.answers = self._serve

    def answer_with(self, answer: Answer) -> None:
        """Has questions answered by a function, which threads call; who asked sooner waits."""
        with self._can_answer:
            self._answer = answer
            self._can_answer.notify_all()

    def ask(
        self, peer: int, question: Mapping[str, Any], arrays: Sequence[NDArray]
    ) -> Mapping[str, Any]:
        """Asks a worker.

        Args:
          peer: its rank.
          question: in JSON.
          arrays: contiguous; get what is asked for, if the answer says that it comes.

        Raises:
          PeerGone: it does not answer.
        """
        sizes = [array.nbytes for array in arrays]
        try:
            with self._listener.ask(peer, self._addresses[peer], CONNECT_SECONDS) as connection:
                connection.settimeout(SILENT_SECONDS)
                send_message(connection, json.dumps({**question, "sizes": sizes}).encode())
                answer = json.loads(receive_message(connection))
                if answer["comes"]:
                    for array in arrays:
                        _fill(connection, array)
                return answer
        except PeerGone:
            raise
        except OSError as error:
            raise PeerGone(peer, f"does not give what it is asked for: {error}") from None

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(SILENT_SECONDS)
        with contextlib.suppress(OSError):
            question = json.loads(receive_message(connection))
            with self._can_answer:
                self._can_answer.wait_for(lambda: self._answer is not None, ANSWER_SECONDS)
            answer, arrays = self._answer(question) if self._answer else ({}, [])
            comes = [array.nbytes for array in arrays] == question["sizes"]
            send_message(connection, json.dumps({**answer, "comes": comes}).encode())
            for array in arrays if comes else ():
                data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                for begin in range(0, len(data), _CHUNK):
                    connection.sendall(data[begin : begin + _CHUNK])


def _fill(connection: socket.socket, array: NDArray) -> None:
    room = array.reshape(-1).view(np.uint8).data
    while room:
        count = connection.recv_into(room[:_CHUNK])
        if not count:
            raise OSError("it closed the connection")
        room = room[count:]
