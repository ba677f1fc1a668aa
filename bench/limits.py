"""What two processes, one core each, get of the machine at once: memory, and TCP over loopback."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import numbers, record

from tfrun.collective.peer_listener import listen
from tfrun.tools.bench import link

BYTES, TIMES = 100 << 20, 12
Measure = Callable[[Any, socket.socket, int], float]


def main(repeats: int = 3) -> None:
    measures: dict[str, Measure] = {
        "memory, copied": copied,
        "TCP over loopback, each way": exchanged,
    }
    samples: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repeats):
        for name, measure in measures.items():
            samples[name].append(at_once(measure))
    record("limits", "GB/s a process", {name: numbers(v) for name, v in samples.items()})


def at_once(measure: Measure) -> float:
    """The slower one's rate of two processes that measure at the same time."""
    forks = multiprocessing.get_context("fork")
    begin, results = forks.Barrier(2), forks.SimpleQueue()
    doors = [listen(""), listen("")]
    ports = [door.getsockname()[1] for door in doors]

    def work(core: int, door: socket.socket, port: int) -> None:
        os.sched_setaffinity(0, {core})
        results.put(measure(begin, door, port))

    cores = sorted(os.sched_getaffinity(0))[:2]
    workers = [
        forks.Process(target=work, args=(core, door, port))
        for core, door, port in zip(cores, doors, reversed(ports), strict=True)
    ]
    for worker in workers:
        worker.start()
    for door in doors:
        door.close()
    for worker in workers:
        worker.join(60)
    return min(results.get() for _ in workers)


def copied(begin: Any, *_: Any) -> float:
    """GB copied in a second."""
    source, target = np.ones(BYTES, np.uint8), np.ones(BYTES, np.uint8)
    begin.wait(30)
    since = time.perf_counter()
    for _ in range(TIMES):
        np.copyto(target, source)
    return TIMES * BYTES / (time.perf_counter() - since) / 1e9


def exchanged(begin: Any, listening: socket.socket, port: int) -> float:
    """GB sent in a second, while as many are received; the fastest time of a few."""
    begin.wait(30)
    return link.bytes_per_second(listening, "127.0.0.1", port) / 1e9


if __name__ == "__main__":
    main()
