"""The host collective between hosts that are cut off, or that lose each other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

# Two workers of a host share its memory; between the hosts there is TCP.
ENDLESS = """
import os, pathlib, time
import tensorflow as tf
from tfrun.engine import host_collective
strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert host_collective.current().world == strategy.num_replicas_in_sync
context = tf.distribute.get_replica_context
step = tf.function(lambda: strategy.run(lambda: context().all_reduce("SUM", tf.ones([100_000]))))
assert float(step()[-1]) == strategy.num_replicas_in_sync
pathlib.Path("running-" + os.environ["TFRUN_ROUND"] + "-" + os.environ["RANK"]).touch()
while True:
    step()
    time.sleep(0.01)
"""


@thorough
def test_the_others_go_on_when_a_host_is_cut_off(hosts: Hosts) -> None:
    options = ("-H", "n1:2,n2:2,n3", "-n", "4:5", "--communication", "host")
    options += ("--launcher-timeout", "6")  # then the one that is cut off gives up
    process = hosts.start(ENDLESS, *options)
    _wait_for(hosts, process, 0, 5)
    hosts.lab.cut("n3")
    _wait_for(hosts, process, 1, 4)
    os.kill(hosts.lab.pid_of(process), signal.SIGINT)
    code, _, err = hosts.end(process, 20)
    assert code == 130, err
    assert "PeerGone" not in err and "Traceback" not in err


@thorough
def test_two_hosts_lose_each_other_and_the_launcher_neither(hosts: Hosts) -> None:
    """Nobody is lost: the two meet again as soon as they can."""
    process = hosts.start(ENDLESS, "-H", "n2,n3", "-n", "2", "--run-dir", "run")
    _wait_for(hosts, process, 0, 2)
    hosts.lab.part("n2", "n3")
    cut = time.time()

    def leaves() -> list[dict[str, Any]]:
        return [event for event in hosts.events("round") if event["state"] == "leaving"]

    (left,) = wait_until(leaves, "they leave the round", 30)
    print(f"noticed {left['time'] - cut:.2f} s after the cut")
    assert left["time"] - cut <= 5  # 3 s, and this machine's load
    hosts.lab.join("n2", "n3")
    _wait_for(hosts, process, 1, 2)
    os.kill(hosts.lab.pid_of(process), signal.SIGINT)
    code, _, err = hosts.end(process, 20)
    assert code == 130, err
    assert not hosts.events("agent_lost") and "Traceback" not in err


def _wait_for(hosts: Hosts, job: subprocess.Popen, number: int, workers: int) -> None:
    wanted = [hosts.directory / f"running-{number}-{rank}" for rank in range(workers)]

    def all_run() -> bool:
        assert job.poll() is None, hosts.said
        return all(path.exists() for path in wanted)

    wait_until(all_run, f"{workers} workers run in round {number}", 60)
