"""A TF_CONFIG on each machine, as tutorials and operators set it: no launcher knows of all."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from lab import TFRUN
from machines import Hosts, needs_hosts, thorough

pytest_plugins = ["host_fixtures"]
pytestmark = [needs_hosts, thorough]

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"
CLUSTER = {"chief": ["n1:2222"], "worker": ["n2:2222", "n3:2222"]}
TASKS = {"n1": ("chief", 0), "n2": ("worker", 0), "n3": ("worker", 1)}
SECONDS = 120


def start(hosts: Hosts, name: str, cluster: dict[str, list[str]], *args: str) -> subprocess.Popen:
    """Starts tfrun on a host that has been told of its task; what it says goes into a file."""
    role, index = TASKS[name]
    config = {"cluster": cluster, "task": {"type": role, "index": index}}
    environment = {**hosts.environment, "TF_CONFIG": json.dumps(config)}
    command = [TFRUN, "--run-dir", f"run-{name}", *args]
    with (hosts.directory / f"said-{name}").open("wb") as out:
        return hosts.lab.start(name, command, hosts.directory, environment, out, out)


def said(hosts: Hosts, name: str) -> str:
    return (hosts.directory / f"said-{name}").read_text()


@pytest.mark.timeout(300)
def test_the_example_trains_with_a_chief_and_two_workers(hosts: Hosts) -> None:
    script = (str(EXAMPLE), "--epochs", "2")
    running = {name: start(hosts, name, CLUSTER, *script) for name in TASKS}
    codes = {name: process.wait(SECONDS) for name, process in running.items()}
    assert codes == dict.fromkeys(TASKS, 0), {name: said(hosts, name) for name in TASKS}
    assert "Epoch 2/2" in said(hosts, "n1") and "accuracy" in said(hosts, "n1")


def test_a_machine_that_is_not_there_is_named(hosts: Hosts) -> None:
    running = {
        name: start(hosts, name, CLUSTER, "--join-timeout", "20", str(EXAMPLE))
        for name in ("n1", "n2")
    }
    assert all(process.wait(SECONDS) for process in running.values())
    for name, task in (("n1", "chief 0"), ("n2", "worker 0")):
        print(said(hosts, name))
        assert f"digits · {task} of a cluster of 3 · " in said(hosts, name)
        waits = rf"{task} waits in the workers' start \([0-9]+ s\) for worker 1 at n3:2222: conn"
        assert len(re.findall(waits, said(hosts, name))) >= 2  # every five seconds
        assert "has been stuck in the workers' start for 2" in said(hosts, name)


def test_a_server_that_is_not_there_is_named(hosts: Hosts) -> None:
    (hosts.directory / "train.py").write_text("import tfrun\ntfrun.strategy()\n")
    cluster = {"chief": ["n1:2222"], "worker": ["n2:2222"], "ps": ["n3:2222"]}
    given = ("--join-timeout", "20", "train.py")
    worker, chief = (start(hosts, name, cluster, *given) for name in ("n2", "n1"))
    assert chief.wait(SECONDS)
    print(said(hosts, "n1"), said(hosts, "n2"))
    waits = r"chief 0 waits in the workers' start \([0-9]+ s\) for ps 0 at n3:2222: connection"
    assert re.search(f"{waits} refused", said(hosts, "n1"))
    worker.wait(SECONDS)
