"""Hosts that are lost and come back, in a job over SSH with `-n MIN:MAX`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

SCRIPT = Path(__file__).parents[1] / "cluster" / "scripts" / "elastic_train.py"
SECONDS = 60


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
        hosts.kill(process)
        print(hosts.said)
        raise
    code, out, err = hosts.end(process)
    print(err)  # pytest shortens long strings
    assert code == 0
    arrays = np.load(hosts.directory / "weights.npz")
    found = json.loads((hosts.directory / "found.json").read_text())
    return [arrays[name] for name in arrays.files], found, out, err


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
@pytest.mark.parametrize("how", [pytest.param("crash", marks=thorough), "cut"])
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
    assert [e["workers"] for e in hosts.events("resized")] == [2, 3]
    assert [e["lost_steps"] for e in hosts.events("recovered")] == [0]
    assert [e["lost_steps"] for e in hosts.events("grown")] == [0]
    compare(hosts, weights, bits=False)


@thorough
@pytest.mark.timeout(400)
def test_a_job_that_needs_the_host_waits_for_it(hosts: Hosts) -> None:
    def disturb() -> None:
        reaches(hosts, 0)
        hosts.lab.crash("n3")
        hosts.until_said(r"waiting for n3 \([0-9]+ s\): connection refused")
        hosts.lab.boot("n3")

    weights, found, _, err = train(hosts, "-H", "n1,n2,n3", waits="0:20:agent_lost:1", then=disturb)
    assert found["workers"] == 3
    assert "; waiting for n3, at most 600 s" in err
    assert "resumed at step 20 with 3 workers" in err
    compare(hosts, weights, bits=True)


@thorough
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


@thorough
@pytest.mark.timeout(400)
def test_a_spare_host_steps_in(hosts: Hosts) -> None:
    crashed = []

    def disturb() -> None:
        reaches(hosts, 0)
        wait_until(lambda: hosts.events("standing_by"), "one stands by", SECONDS)
        # The two that were there first have the workers; the chief is on the first of them.
        crashed.append(max(event["agent"] for event in hosts.events("prepared")))
        hosts.lab.crash(crashed[0])

    weights, found, _, err = train(
        *(hosts, "-H", "n1,n2,n3", "-n", "1:2"),
        waits="0:20:standing_by:1 0:21:agent_lost:1",
        then=disturb,
    )
    assert found["workers"] == 2
    assert f"the agent {crashed[0]} was lost" in err and "resumed at step 2" in err
    assert not hosts.events("resized")  # never fewer than two
    compare(hosts, weights, bits=False)
