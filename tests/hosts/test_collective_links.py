"""The host collective alone, without TensorFlow, over links that are slow, break, and come back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import NET, Lab
from machines import needs_hosts, thorough

from conftest import wait_until

pytestmark = needs_hosts

# Sums until it is told to stop or loses a peer; says how often, by files.
SUMS = """
import sys
from pathlib import Path
import numpy as np
from tfrun.collective.errors import PeerGone
from tfrun.collective.form_collective import form
from tfrun.collective.peer_listener import PeerListener
net, rank, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
def said(name, text):
    folder.joinpath(name + ".part").write_text(text)
    folder.joinpath(name + ".part").rename(folder / name)
listener = PeerListener(rank, 3, "secret", f"{net}.{rank + 1}", 2222)
group = form(listener, rank, 3, [(f"{net}.{peer + 1}", 2222) for peer in range(3)])
small, large = np.full(10, rank + 1.0), np.full(100_000, rank + 1.0, np.float32)
for number in range(1_000_000):
    try:
        for total in (*group.all_reduce([small]), *group.all_reduce([large])):
            assert total.min() == total.max() == 6, total
    except PeerGone as error:
        said(f"gone-{rank}", str(error))
        break
    said(f"count-{rank}", str(number))
"""


class Sums:
    """Three hosts, each of which runs the script."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self._folder = lab, folder
        self._running = [
            lab.start(
                name,
                [sys.executable, "-c", SUMS, NET, str(rank), str(folder)],
                folder,
                dict(os.environ),
                subprocess.DEVNULL,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
            )
            for rank, name in enumerate(lab.names)
        ]

    def count(self, rank: int) -> int:
        path = self._folder / f"count-{rank}"
        return int(path.read_text()) if path.exists() else -1

    def go_on(self, seconds: float) -> None:
        before = [self.count(rank) for rank in range(3)]
        wait_until(
            lambda: all(self.count(rank) > before[rank] + 2 for rank in range(3)),
            "all hosts go on",
            seconds,
        )

    def gone(self, rank: int) -> str:
        path = self._folder / f"gone-{rank}"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for process in self._running:
            process.wait(10)


@pytest.fixture
def sums(tmp_path: Path) -> Iterator[Sums]:
    lab = Lab(tmp_path, 3)
    try:
        lab.up()
        yield Sums(lab, tmp_path)
    finally:
        lab.down()


@thorough
def test_slow_and_broken_links(sums: Sums) -> None:
    sums.go_on(20)
    sums.lab.slow("n2", "100mbit")
    sums.go_on(20)
    sums.lab.cut("n3")
    time.sleep(2)  # so long the link is down
    assert not any(sums.gone(rank) for rank in range(3))
    sums.lab.plug_in("n3")
    sums.go_on(10)
    sums.lab.cut("n3")
    began = time.monotonic()
    wait_until(lambda: all(sums.gone(rank) for rank in range(3)), "all notice", 30)
    assert time.monotonic() - began < 20
    assert "rank 2" in sums.gone(0) + sums.gone(1)
    sums.end()
