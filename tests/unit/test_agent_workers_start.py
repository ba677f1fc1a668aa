"""Whom a worker waits for in the workers' start, and what a person is told of it."""

from __future__ import annotations

import asyncio
import socket
import time

from tfrun.agent.workers_start import StartWatch
from tfrun.cluster import start_order
from tfrun.cluster.address import Address
from tfrun.cluster.cluster_spec import ClusterSpec, TaskKey

PORTS = {"worker": 2, "chief": 1, "evaluator": 1}
CLUSTER = ClusterSpec.of(
    {role: [Address(host=role[0], port=i + 1) for i in range(n)] for role, n in PORTS.items()}
)


def of(role: str, index: int, *, alone: bool) -> list[tuple[str, str]]:
    return start_order.awaited(CLUSTER, TaskKey(type=role, index=index), alone=alone)


def test_the_first_looks_at_all_and_all_at_the_first():
    assert of("chief", 0, alone=False) == [("worker 0", "w:1"), ("worker 1", "w:2")]
    assert of("worker", 1, alone=False) == [("chief 0", "c:1")]
    assert of("worker", 1, alone=True) == [("chief 0", "c:1"), ("worker 0", "w:1")]
    assert of("evaluator", 0, alone=True) == []  # it is not in the cluster
    servers = ClusterSpec.of(
        {"worker": CLUSTER.addresses("worker"), "ps": [Address(host="p", port=1)]}
    )
    assert start_order.awaited(servers, TaskKey(type="worker", index=0), alone=True) == []
    chief = TaskKey(type="chief", index=0)  # which may be in no cluster with servers
    found = [("worker 0", "w:1"), ("worker 1", "w:2"), ("ps 0", "p:1")]
    assert start_order.awaited(servers, chief, alone=False) == found


def test_when_to_look():
    assert not start_order.is_due(4.9, None) and start_order.is_due(5.0, None)
    assert not start_order.is_due(9.0, 5.0) and start_order.is_due(10.0, 5.0)
    assert not start_order.is_due(80.0, 60.0) and start_order.is_due(90.0, 60.0)


def test_the_reasons_and_the_sentence():
    with socket.create_server(("127.0.0.1", 0)) as listens:
        port = listens.getsockname()[1]
        peers = [
            ("worker 0", Address(host="127.0.0.1", port=port)),
            ("worker 1", Address(host="127.0.0.1", port=1)),
        ]
        peers += [("worker 2", Address(host="nobody.invalid", port=1))]
        found = asyncio.run(start_order.missing(peers))
    assert set(found) == {"worker 1 at 127.0.0.1:1", "worker 2 at nobody.invalid:1"}
    text = start_order.sentence("chief 0", 5.2, 3, found)
    assert text.startswith(
        "chief 0 waits in the workers' start (5 s) for worker 1 at 127.0.0.1:1: "
    )
    assert "connection refused" in text and "its name does not resolve" in text
    many = {f"worker {i} at a:{i}": "no answer" for i in range(1, 10)}
    assert start_order.sentence("worker 0", 5.0, 9, many).endswith("; and 4 more")
    assert start_order.sentence("worker 0", 5.0, 1, {}) == ""  # it has only begun
    assert "is it a worker that listens there?" in start_order.sentence("worker 0", 20.0, 1, {})


def test_it_is_told_when_it_is_time():
    told: list[str] = []

    async def run() -> str:
        watch = StartWatch("worker 0", [["worker 1", "127.0.0.1:1"]])
        watch.look(time.monotonic() - 2, told.append)
        since = time.monotonic() - 6
        for _ in range(3):  # once, however often it is asked
            watch.look(since, told.append)
            for _ in range(100):
                if told:
                    break
                await asyncio.sleep(0.02)
        return watch.end()

    why = asyncio.run(run())
    assert why == " (worker 1 at 127.0.0.1:1: connection refused: nothing listens there)"
    (line,) = told
    assert line.startswith("worker 0 waits in the workers' start (6 s) for worker 1 at 127.0.0.1:1")
