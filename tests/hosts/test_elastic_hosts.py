"""Hosts that are lost and come back, in a job over SSH with `-n MIN:MAX`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import why_not
from test_ssh import Hosts, three_hosts

from conftest import wait_until

SCRIPT = Path(__file__).parents[1] / "cluster" / "scripts" / "elastic_train.py"
SECONDS = 60
REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no hosts to test with: {REASON}")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    yield from three_hosts(tmp_path, shared=True)


def train(hosts: Hosts, *options: str, waits: str = "", then: Callable[[], None] | None = None):
    """Runs the training to its end; `then` happens to it on the way."""
    hosts.environment |= {"WAITS": waits}
    passed = ("--env", "WAITS") if "-H" in options else ()
    options = (*options, *passed, "--seed", "5", "--run-dir", "run")
    process = hosts.start(SCRIPT.read_text(), *options)
    try:
        if then:
            then()
    except BaseException:
        if process.poll() is None:
            os.kill(hosts.lab.pid_of(process), signal.SIGKILL)
        print(process.communicate(timeout=10))
        raise
    code, out, err = hosts.end(process)
    assert code == 0, err
    arrays = np.load(hosts.directory / "weights.npz")
    found = json.loads((hosts.directory / "found.json").read_text())
    return [arrays[name] for name in arrays.files], found, out, err


def events(hosts: Hosts, kind: str) -> list[dict[str, Any]]:
    lines = (hosts.directory / "run" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def reaches(hosts: Hosts, number: int) -> None:
    """Waits until the chief waits in a round."""
    path = hosts.directory / f"waiting-{number}"
    wait_until(path.exists, f"the chief of round {number} waits", SECONDS)


def compare(hosts: Hosts, weights: list[np.ndarray], *, bits: bool) -> None:
    """With the same training on one host, undisturbed."""
    (hosts.directory / "run").rename(hosts.directory / "disturbed")
    wanted, *_ = train(hosts, "-n", "3")
    for one, other in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0 if bits else 1e-4, atol=0 if bits else 1e-5)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", ["crash", "cut"])
def test_a_host_is_lost_and_returns(hosts: Hosts, how: str) -> None:
    def disturb() -> None:
        reaches(hosts, 0)
        hosts.lab.crash("n2") if how == "crash" else hosts.lab.cut("n2")
        reaches(hosts, 1)
        hosts.lab.boot("n2") if how == "crash" else hosts.lab.plug_in("n2")

    weights, found, _, err = train(
        *(hosts, "-H", "n1,n2,n3", "-n", "2:3"),
        waits="0:20:agent_lost:1 1:40:regroup:1",
        then=disturb,
    )
    assert found["workers"] == 3
    assert "the agent n2 was lost" in err and "with 2 workers after" in err
    assert "tfrun: n2 joined; resumed at step" in err
    assert [e["workers"] for e in events(hosts, "resized")] == [2, 3]
    assert [e["lost_steps"] for e in events(hosts, "recovered")] == [0]
    assert [e["lost_steps"] for e in events(hosts, "grown")] == [0]
    compare(hosts, weights, bits=False)


@pytest.mark.timeout(400)
def test_a_job_that_needs_the_host_waits_for_it(hosts: Hosts) -> None:
    def disturb() -> None:
        reaches(hosts, 0)
        hosts.lab.crash("n3")
        wait_until(lambda: events(hosts, "waiting"), "the job waits", SECONDS)
        time.sleep(6)  # for the line that says so
        hosts.lab.boot("n3")

    weights, found, _, err = train(hosts, "-H", "n1,n2,n3", waits="0:20:agent_lost:1", then=disturb)
    assert found["workers"] == 3
    assert "; waiting for n3, at most 600 s" in err
    assert "tfrun: waiting for n3 (5 s): connection refused" in err
    assert "resumed at step 20 with 3 workers" in err
    compare(hosts, weights, bits=True)


@pytest.mark.timeout(400)
def test_a_start_without_all_hosts(hosts: Hosts) -> None:
    hosts.lab.crash("n3")

    def late() -> None:
        reaches(hosts, 0)
        hosts.lab.boot("n3")

    weights, found, _, err = train(
        *(hosts, "-H", "n1,n2,n3", "-n", "2:3", "--join-timeout", "16"),
        waits="0:20:regroup:1",
        then=late,
    )
    assert found["workers"] == 3
    assert "tfrun: n3 joined; resumed at step 20 with 3 workers" in err
    compare(hosts, weights, bits=False)
