"""What may happen to hosts while a job over SSH runs: nothing hangs, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import time

from machines import ENDLESS, Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts


@thorough
def test_a_host_crashes(hosts: Hosts) -> None:
    # In which TensorFlow is imported as well, on three hosts that are one machine.
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3", "--join-timeout", "25")
    hosts.wait_until_running(3)
    hosts.lab.crash("n2")
    began = time.monotonic()
    code, _, err = hosts.end(process, 60)
    assert time.monotonic() - began <= 45
    assert code == 1
    assert "the agent n2 was lost" in err and "waiting for n2, at most 25 s" in err
    assert "TFRUN-303" in err and "did not return in 25 s" in err


def test_a_host_is_cut_off(hosts: Hosts) -> None:
    options = ("--max-restarts", "0", "--launcher-timeout", "7", "--run-dir", "run")
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3", *options)
    hosts.wait_until_running(3)
    hosts.lab.cut("n3")
    began, cut = time.monotonic(), time.time()
    code, _, err = hosts.end(process, 30)
    assert time.monotonic() - began <= 10
    assert code == 1
    (lost,) = hosts.events("agent_lost")
    print(f"noticed {lost['time'] - cut:.2f} s after the cut")
    assert lost["time"] - cut <= 5.5  # 5 s, and this machine's load
    assert "TFRUN-301" in err and "the agent n3 was lost" in err
    # Nobody can tell it so: it ends its workers by itself.
    wait_until(lambda: not hosts.lab.processes("n3"), "the cut host ends its workers", 10)


def test_the_launcher_is_killed(hosts: Hosts) -> None:
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3")
    hosts.wait_until_running(3)
    assert len(hosts.left()) > 6
    hosts.kill(process)
    wait_until(lambda: not hosts.left(), "nothing runs on any host", 5)


@thorough
def test_ctrl_c(hosts: Hosts) -> None:
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3")
    hosts.wait_until_running(3)
    os.kill(hosts.lab.pid_of(process), signal.SIGINT)
    code, _, err = hosts.end(process, 15)
    assert code == 130, err


@thorough
def test_one_that_is_stuck_in_the_workers_start(hosts: Hosts) -> None:
    """A firewall lets only SSH in: worker 1 would never know that worker 0 lives."""
    hosts.lab.drop("n1", "1024-65535")
    args = ("-H", "n1,n2", "--join-timeout", "20", "--max-restarts", "0")
    code, _, err = hosts.end(hosts.start(ENDLESS, *args), 90)
    assert code == 137, err
    waits = (
        r"worker 1 waits in the workers' start \([0-9]+ s\) for worker 0 at 10\.66\.0\.1:[0-9]+: "
    )
    assert re.search(f"{waits}no answer: it is down, or a firewall drops the packets", err), err
    assert "worker 1 has been stuck in the workers' start for 2" in err
