"""`tfrun.launch` on several hosts: those that share a directory, and those that do not."""

from __future__ import annotations

import sys

from machines import Hosts, needs_hosts

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

PROGRAM = """
import platform, tfrun
def places(start):
    import tensorflow as tf
    rank = tf.constant(start + tfrun.world().rank)
    total = tfrun.strategy().reduce("SUM", rank, axis=None)
    return platform.node(), int(total)
try:
    print("CAME", *tfrun.launch(places, (1,), hosts="n2,n3", workers=2))
except tfrun.TfrunError as error:
    print("RAISED", error)
"""


def called(hosts: Hosts) -> str:
    (hosts.directory / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py"]
    return hosts.lab.call("n1", command, hosts.directory, hosts.environment, seconds=90)


def test_a_function_runs_on_hosts_that_share_a_directory(hosts: Hosts) -> None:
    said = called(hosts)
    assert "CAME n2 3" in said, said
    assert not list(hosts.directory.glob("tfrun-runs/*/launch-*"))


def test_hosts_that_do_not_share_it_are_named(lone_hosts: Hosts) -> None:
    said = called(lone_hosts)
    assert "RAISED TFRUN-305: the agent n" in said, said
    assert "Call tfrun.launch from a directory that all hosts share" in said
    assert not list(lone_hosts.directory.glob("tfrun-runs/*/launch-*"))
