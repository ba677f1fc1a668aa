"""`TPUStrategy`, or a clear error within seconds. Only the error was tried: there was no TPU."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import tensorflow as tf

from tfrun.job.errors import TfrunError

SECONDS = 8.0


def strategy(tpu: str | None = None) -> tf.distribute.Strategy:
    """Connects to a TPU and returns its strategy.

    Args:
      tpu: the TPU's name or grpc:// address; by default the one that the environment names.

    Raises:
      TfrunError: TFRUN-502, when none is found or it does not answer within ten seconds.
    """
    try:
        find = functools.partial(tf.distribute.cluster_resolver.TPUClusterResolver, tpu=tpu or "")
        resolver = _in_a_thread(find).result(SECONDS)
        _check_answers(resolver.master())
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        # What TensorFlow raises here depends on the machine: ValueError, URLError, OpError, …
        said = str(error) or f"no answer in {SECONDS:.0f} s"
        raise _none(f"{type(error).__name__}: {said}") from error
    return tf.distribute.TPUStrategy(resolver)


def _check_answers(master: str) -> None:
    """Connecting TensorFlow to an address where no gRPC server is would wait for ever."""
    if not master or master == "local":
        if not tf.config.list_physical_devices("TPU"):
            raise ConnectionError("this machine has no TPU")
        return
    host, _, port = master.removeprefix("grpc://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS / 2) as connection:
        # HTTP/2: the client's preface with empty settings; a server's first frame is settings.
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        if connection.recv(9)[3:4] != b"\x04":
            raise ConnectionError(f"{master} is no gRPC server")


def _in_a_thread(call: Callable[[], Any]) -> Future[Any]:
    """What `call` gives; on a cloud's machine it asks servers that may not answer."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tpu-lookup").start()
    return found


def _none(reason: str) -> TfrunError:
    return TfrunError(
        "TFRUN-502",
        f"no TPU was found: {' '.join(reason.split())[:300]}",
        expected="a TPU of this machine, or tpu='its name or grpc:// address'",
        fix="On a machine without TPUs use kind='auto'",
    )
