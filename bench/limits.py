"""What two processes, one core each, get of the machine at once: memory, and TCP over loopback."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import numbers, record

BYTES, TIMES = 100 << 20, 12
CHUNK = 1 << 20


def main(repeats: int = 3) -> None:
    samples: dict[str, list[float]] = {"memory, copied": [], "TCP over loopback, each way": []}
    for _ in range(repeats):
        samples["memory, copied"].append(at_once(copied))
        samples["TCP over loopback, each way"].append(at_once(exchanged))
    record("limits", "GB/s a process", {name: numbers(v) for name, v in samples.items()})


def at_once(measure: Callable[[Any, socket.socket], float]) -> float:
    """The slower one's rate of two processes that measure at the same time."""
    forks = multiprocessing.get_context("fork")
    begin, results = forks.Barrier(2), forks.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as door:
        first = socket.create_connection(door.getsockname())
        second, _ = door.accept()
    workers = [
        forks.Process(target=_worker, args=(measure, core, end, begin, results))
        for core, end in zip(sorted(os.sched_getaffinity(0))[:2], (first, second), strict=True)
    ]
    with first, second:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    return min(json.loads(results.get()) for _ in workers)


def copied(begin: Any, _: socket.socket) -> float:
    """GB copied in a second."""
    source, target = np.ones(BYTES, np.uint8), np.ones(BYTES, np.uint8)
    begin.wait(30)
    since = time.perf_counter()
    for _ in range(TIMES):
        np.copyto(target, source)
    return TIMES * BYTES / (time.perf_counter() - since) / 1e9


def exchanged(begin: Any, peer: socket.socket) -> float:
    """GB sent in a second, while as many are received."""
    source, into = memoryview(bytes(CHUNK)), memoryview(bytearray(CHUNK))

    def receive() -> None:
        left = TIMES * BYTES
        while left:
            left -= peer.recv_into(into[: min(left, CHUNK)])

    begin.wait(30)
    since = time.perf_counter()
    receiver = threading.Thread(target=receive)
    receiver.start()
    for _ in range(TIMES * BYTES // CHUNK):
        peer.sendall(source)
    receiver.join()
    return TIMES * BYTES / (time.perf_counter() - since) / 1e9


def _worker(measure: Any, core: int, peer: socket.socket, begin: Any, results: Any) -> None:
    os.sched_setaffinity(0, {core})
    results.put(json.dumps(measure(begin, peer)))


if __name__ == "__main__":
    main()
