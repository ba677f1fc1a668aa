"""The program that `tfrun doctor` runs on each machine: answers questions, one JSON object a line.

It stays until its standard input ends. Nothing in it imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tfrun.collective.form_collective import form
from tfrun.collective.peer_listener import PeerListener
from tfrun.job.supported_versions import version_of
from tfrun.job.version import __version__
from tfrun.launcher.remote_agent import own_address
from tfrun.process.python import usable_cores
from tfrun.tools import nvidia
from tfrun.tools.doctor import large_packets

PREFIX = "tfrun-doctor "
DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "keras", "numpy")
CONNECT_SECONDS = 10.0
BACKLOG = 64
JsonObject = dict[str, Any]


def facts(names: list[str], directory: str, run_dir: str) -> JsonObject:
    """Returns what this machine is, and what it takes each of `names` for."""
    memory = psutil.virtual_memory()
    interfaces = _interfaces()
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            "tfrun": __version__,
            **{name: found for name in DISTRIBUTIONS if (found := version_of(name))},
        },
        "cores": usable_cores(),
        "load": os.getloadavg()[0],
        "memory": {"total": memory.total, "free": memory.available},
        "directory": directory if os.path.isdir(directory) else None,  # noqa: PTH112
        "disk": _disk(run_dir),
        "temporary": _space(tempfile.gettempdir()),
        "shm": _space("/dev/shm"),
        "limits": {
            "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        },
        "gpus": nvidia.gpus(),
        "has_nvidia_driver": os.path.isdir("/proc/driver/nvidia"),  # noqa: PTH112
        "address": own_address(
            os.environ.get("SSH_CONNECTION", ""), [a["address"] for a in interfaces]
        ),
        "interfaces": interfaces,
        "names": {name: _resolve(name) for name in names},
    }


def _space(where: str) -> JsonObject | None:
    try:
        usage = shutil.disk_usage(where)
    except OSError:
        return None
    return {"path": where, "total": usage.total, "free": usage.free}


def _disk(wanted: str) -> JsonObject | None:
    """The disk on which a directory is, or would be made."""
    there = Path(wanted).resolve()
    while not there.is_dir() and there != there.parent:
        there = there.parent
    found = _space(str(there))
    return found and {**found, "writable": os.access(there, os.W_OK | os.X_OK)}


def _interfaces() -> list[JsonObject]:
    states = psutil.net_if_stats()
    return [
        {"name": name, "address": address.address, "mbits": states[name].speed}
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]


def _resolve(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(entry[4][0]) for entry in found})


def connect(address: str, port: int, seconds: float, guess: int = 0) -> JsonObject:
    """Says what becomes of a connection.

    "reachable", "refused", "dropped", "unreachable", or "narrow": it does not carry large packets,
    only those of up to "mtu" bytes.

    `guess` is the MTU of another way that is narrow.
    """
    began = time.perf_counter()
    try:
        with socket.create_connection((address, port), seconds):
            took = time.perf_counter() - began
        if mtu := large_packets.narrow(address, port, seconds, guess):
            return {"verdict": "narrow", "mtu": mtu}
        return {"verdict": "reachable", "seconds": took}
    except ConnectionRefusedError:
        return {"verdict": "refused"}
    except TimeoutError:
        return {"verdict": "dropped"}
    except OSError as error:
        return {"verdict": "unreachable", "why": error.strerror or str(error)}


class Probe:
    """What one machine is asked, and what it keeps between two questions."""

    def __init__(self) -> None:
        self._listening: socket.socket | None = None
        self._listener: PeerListener | None = None

    def answer(self, question: str, values: dict[str, Any]) -> JsonObject:
        known: dict[str, Callable[..., JsonObject]] = {
            "facts": facts,
            "connect": connect,
            "clock": lambda: {"time": time.time()},
            "listen": self._listen,
            "meet": self._meet,
            "sum": self._sum,
        }
        return known[question](**values)

    def _listen(self) -> JsonObject:
        """Opens a port that `connect` can look for, on all interfaces."""
        if self._listening is None:
            self._listening = socket.create_server(("0.0.0.0", 0), backlog=BACKLOG)
        return {"port": self._listening.getsockname()[1]}

    def _meet(self, rank: int, world: int, key: str) -> JsonObject:
        """Opens the port at which the other machines of a sum find this one."""
        self._listener = PeerListener(rank, world, key)
        return {"port": self._listener.port}

    def _sum(
        self, rank: int, world: int, peers: list[tuple[str, int]], count: int, times: int
    ) -> JsonObject:
        """Sums a vector with the other machines, as the workers of a job do.

        `peers` has address and port of each; the vector has `count` float32 numbers.

        Returns:
          "seconds": of the fastest time; "right": the sum is.
        """
        assert self._listener is not None
        mine, expected = np.full(count, rank + 1, np.float32), world * (world + 1) / 2
        seconds, right = float("inf"), True
        addresses = [(host, port) for host, port in peers]
        group = form(self._listener, rank, world, addresses, seconds=CONNECT_SECONDS)
        with contextlib.closing(self._listener), contextlib.closing(group):
            for _ in range(times + 1):  # the first one warms up
                began = time.perf_counter()
                (found,) = group.all_reduce([mine])
                seconds = min(seconds, time.perf_counter() - began)
                right = right and bool((found == expected).all())
        return {"seconds": seconds, "right": right}


def main() -> None:
    """Answers until there are no more questions."""
    probe = Probe()
    _say({"version": __version__})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _say(probe.answer(asked["question"], asked["values"]))
        except Exception as error:  # the other side decides what it means
            _say({"error": f"{type(error).__name__}: {error}"})


def _say(answer: JsonObject) -> None:
    print(PREFIX + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
