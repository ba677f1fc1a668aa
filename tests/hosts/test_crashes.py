"""Machines crash again and again, anywhere in a training, and it ends as if none had."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

SCRIPT = Path(__file__).parents[1] / "deaths" / "scripts" / "dies.py"
EPOCHS, CRASHES, SECONDS = 6, int(os.environ.get("TEST_CRASHES", "3")), 90
PLACES = (
    *("epoch_begin", "batch_begin:0", "in_step:0", "batch_end:0", "in_step:1", "batch_end:2"),
    *("batch_begin:3", "in_step:3", "batch_end:3"),
    *("test_begin", "test_batch_begin:0", "test_batch_end:0", "test_end", "epoch_end"),
)
KINDS = ("seeded", "unseeded", "cache", "layers", "repeat", "arrays", "shared shuffle")


def crashes(seed: int, count: int) -> list[str]:
    """Places in the order in which a training comes by, each on n2 or n3."""
    draw = random.Random(seed)
    every = list(itertools.product(range(EPOCHS), PLACES))
    chosen = sorted(draw.sample(range(len(every)), count))
    return [f"{draw.choice((1, 2))}:{every[i][0]}:{every[i][1]}" for i in chosen]


@thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(int(os.environ.get("TEST_SEEDS", "2"))))
def test_machines_crash_anywhere(hosts: Hosts, seed: int) -> None:
    kills = crashes(seed, CRASHES)
    own = {
        "KIND": KINDS[seed % len(KINDS)],
        "EPOCHS": str(EPOCHS),
        "TEST_OUT": str(hosts.directory / "out.json"),
    }

    def train(*options: str) -> subprocess.Popen:
        passed = [word for name in (*own, "KILLS", "HOW") for word in ("--env", name)]
        return hosts.start(
            SCRIPT.read_text(), "-n", "3", *options, *passed, "--seed", "5", "--run-dir", "run"
        )

    hosts.environment |= {**own, "KILLS": " ".join(kills), "HOW": "machine"}
    process = train("-H", "n1,n2,n3", "--join-timeout", "120")
    try:
        for number in range(len(kills)):
            path = hosts.directory / f"crash-{number}"

            def asked(path: Path = path) -> bool:
                assert process.poll() is None, hosts.said
                return path.exists()

            wait_until(asked, f"{kills[number]} is reached, {number} of {kills}", SECONDS)
            name = path.read_text()
            hosts.lab.crash(name)
            hosts.lab.boot(name)
    except BaseException:
        hosts.kill(process)
        print(hosts.said)
        raise
    code, _, err = hosts.end(process, 240)
    print(err, file=sys.stderr)
    assert code == 0, kills
    found = json.loads((hosts.directory / "out.json").read_text())
    (hosts.directory / "run").rename(hosts.directory / "disturbed")
    hosts.environment["KILLS"] = ""
    process = hosts.start(SCRIPT.read_text(), "-n", "3", "--seed", "5", "--run-dir", "run")
    assert hosts.end(process)[0] == 0
    wanted = json.loads((hosts.directory / "out.json").read_text())
    assert found == wanted, (kills, err)
