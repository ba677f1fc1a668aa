"""What tfrun doctor finds, from facts that machines have told."""

from __future__ import annotations

import copy
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conftest import Jobs
from tfrun.tools.doctor import findings, large_packets, probe
from tfrun.tools.doctor.examine import pairs_that_matter

GB = 1 << 30
GOOD: dict[str, Any] = {
    "host": "n1",
    "versions": {"python": "3.11.7", "tfrun": "0.1", "tensorflow-cpu": "2.21.0", "keras": "3.15"},
    "cores": 4,
    "load": 0.5,
    "memory": {"total": 64 * GB, "free": 32 * GB},
    "directory": "/home",
    "disk": {"path": "/home", "total": 100 * GB, "free": 50 * GB, "writable": True},
    "shm": {"path": "/dev/shm", "total": 32 * GB, "free": 32 * GB},
    "limits": {"open files": 65536, "processes": -1},
    "gpus": [{"name": "H100", "driver": "550.1", "memory": "80 GB"}],
    "has_nvidia_driver": True,
    "address": "10.0.0.1",
    "interfaces": [],
    "names": {"n1": ["10.0.0.1"], "n2": ["10.0.0.2"], "n3": ["10.0.0.3"]},
}


def changed(**change: Any) -> dict[str, Any]:
    return {**copy.deepcopy(GOOD), **change}


def three(**change: Any) -> dict[str, dict[str, Any]]:
    return {"n1": changed(), "n2": changed(**change), "n3": changed()}


def shown(found) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.where, finding.what) for finding in found]


def test_of_good_machines_nothing_is_found():
    for check in (findings.of_versions, findings.of_gpus, findings.of_names, findings.of_network):
        assert not list(check(three()))
    assert not list(findings.of_machine("n1", GOOD))


@pytest.mark.parametrize(
    ("change", "severity", "says"),
    [
        ({"versions": {"python": "3.11.7"}}, "error", "TensorFlow is not installed"),
        ({"memory": {"total": GB, "free": GB // 2}}, "error", "only 0.5 GB of memory"),
        ({"memory": {"total": 4 * GB, "free": 2 * GB}}, "warning", "only 2.0 GB of memory"),
        ({"disk": {**GOOD["disk"], "free": 0}}, "error", "free at /home"),
        ({"disk": {**GOOD["disk"], "writable": False}}, "error", "/home cannot be written"),
        ({"directory": None}, "warning", "the working directory is not there"),
        ({"limits": {"open files": 256, "processes": -1}}, "warning", "may open 256 files"),
        ({"limits": {"open files": -1, "processes": 1024}}, "warning", "1024 processes"),
        ({"shm": None}, "warning", "/dev/shm is missing"),
        ({"shm": {"total": 64 << 20, "free": 64 << 20}}, "warning", "/dev/shm has only 0.1 GB"),
        ({"shm": {"total": 2 * GB, "free": 0}}, "warning", "of /dev/shm are free"),
        ({"gpus": []}, "warning", "nvidia-smi shows no GPU"),
        ({"load": 9.0}, "warning", "its load is 9 on 4 cores"),
    ],
)
def test_what_is_wrong_with_one_machine(change, severity, says):
    ((found, where, what),) = shown(findings.of_machine("n1", changed(**change)))
    assert (found, where) == (severity, "n1") and says in what


def test_who_reaches_the_ports_of_tensorflow():
    ((severity, where, what),) = shown(findings.of_openness(three()))
    assert (severity, where) == ("note", "n1, n2, n3") and "take part in the job" in what
    ((severity, where, what),) = shown(findings.of_openness(three(address="1.1.1.1")))
    assert (severity, where) == ("warning", "n2") and "on the public Internet" in what
    assert not list(findings.of_openness({"n1": changed(address="1.1.1.1")}))
    assert not findings.fails(list(findings.of_openness(three())))


@pytest.mark.parametrize(
    ("program", "version", "severity"),
    [
        *(("tensorflow-cpu", "2.20.0", "error"), ("keras", "3.14", "error")),
        *(("python", "3.12.1", "error"), ("python", "3.11.8", "warning")),
    ],
)
def test_the_machine_with_another_version_is_named(program, version, severity):
    machines = three(versions={**GOOD["versions"], program: version})
    ((found, where, what),) = shown(findings.of_versions(machines))
    assert (found, where) == (severity, "n2")
    assert what.startswith(f"{program} is {version}, elsewhere ")


def test_other_gpus_and_drivers_are_named():
    other = [{"name": "A100", "driver": "535.2", "memory": "40 GB"}]
    said = shown(findings.of_gpus(three(gpus=other)))
    assert [where for _, where, _ in said] == ["n2", "n2"]
    assert "A100, elsewhere H100" in said[0][2] and "535.2" in said[1][2]


def test_clocks_count_when_they_differ_by_more_than_is_uncertain():
    offsets = {"n1": (0.2, 0.01), "n2": (-3.0, 0.1), "n3": (1.5, 2.0)}
    ((severity, where, what),) = shown(findings.of_clocks(offsets))
    assert (severity, where) == ("warning", "n2") and "3.0 s behind" in what


def test_names_mean_the_same_everywhere():
    elsewhere = {**GOOD["names"], "n3": ["192.168.1.3"]}
    ((_, where, what),) = shown(findings.of_names(three(names=elsewhere)))
    assert where == "n2" and what == "n3 is 192.168.1.3 there, elsewhere 10.0.0.3"
    own = {**GOOD["names"], "n2": ["127.0.1.1"]}  # its own name, as Debian has it
    assert not list(findings.of_names(three(names=own)))
    loop = {**GOOD["names"], "n1": ["127.0.0.1"]}
    said = shown(findings.of_names(three(names=loop)))
    assert any("resolves to 127.0.0.1" in what for _, _, what in said)


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ({"verdict": "dropped"}, "silently dropped"),
        ({"verdict": "refused"}, "refused"),
        ({"verdict": "unreachable", "why": "No route to host"}, "(No route to host)"),
    ],
)
def test_a_blocked_connection_is_an_error_with_its_direction(verdict, says):
    verdicts = {("n1", "n2"): {"verdict": "reachable"}, ("n2", "n1"): verdict}
    found = list(findings.of_connections(verdicts))
    assert shown(found)[0][:2] == ("error", "n2 → n1") and says in found[0].what
    assert findings.fails(found)


def test_without_an_address_nobody_reaches_it():
    assert [where for _, where, _ in shown(findings.of_network(three(address="")))] == ["n2"]
    assert not list(findings.of_network({"this machine": changed(address="")}))


def test_the_slow_machine_has_a_name():
    fast, slow = 1e9, 1e8
    pairs = {("a", "b"): fast, ("a", "c"): slow, ("b", "c"): slow}
    assert [name for name, _, _ in findings.slow_machines(pairs)] == ["c"]
    ((severity, where, what),) = shown(findings.of_speeds(pairs))
    assert (severity, where) == ("warning", "c")
    assert "100 MB/s with the others, they 1000 MB/s" in what
    assert not findings.slow_machines({("a", "b"): slow})
    assert not findings.slow_machines(dict.fromkeys(pairs, slow))


def test_all_pairs_of_some_machines_and_neighbours_of_many():
    assert len(pairs_that_matter(["a", "b", "c"])) == 6
    many = [f"n{number}" for number in range(100)]
    pairs = pairs_that_matter(many)
    assert len(set(pairs)) == len(pairs) < 400
    assert {("n98", "n99"), ("n99", "n98"), ("n99", "n0"), ("n0", "n50")} <= set(pairs)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("count", [2, 1000])
def test_machines_sum(world: int, count: int):
    probes = [probe.Probe() for _ in range(world)]
    ports = [
        one.answer("meet", {"rank": rank, "world": world, "key": "k"})["port"]
        for rank, one in enumerate(probes)
    ]
    asked = {"world": world, "peers": [["127.0.0.1", port] for port in ports]}
    # Somebody who only looks whether the port is open does not disturb it.
    assert probe.connect("127.0.0.1", ports[0], 1.0)["verdict"] == "reachable"
    with ThreadPoolExecutor(world) as pool:
        said = [
            pool.submit(one.answer, "sum", {**asked, "rank": rank, "count": count, "times": 2})
            for rank, one in enumerate(probes)
        ]
        assert all(one.result(20)["right"] and one.result()["seconds"] > 0 for one in said)


def test_this_machine(jobs: Jobs):
    done = jobs.run("doctor", "--json")
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["fit"] else 1)
    (facts,) = said["machines"].values()
    assert facts["cores"] >= 1 and facts["memory"]["total"] > 0
    text = jobs.run("doctor")
    assert "this machine: Python 3." in text.stdout and "train" in text.stdout.splitlines()[-1]


def test_a_way_on_which_large_packets_are_lost_is_named_with_its_mtu():
    verdicts = {
        ("n1", "n2"): {"verdict": "narrow", "mtu": 1400},
        ("n2", "n1"): {"verdict": "reachable", "seconds": 0.1},
    }
    (found,) = findings.of_connections(verdicts)
    assert (found.severity, found.where) == ("error", "n1 → n2")
    assert "more than 1400 bytes" in found.what and "mtu 1400" in found.fix


def test_a_way_that_carries_all():
    """Loopback does, whatever listens there, and also with small packets only."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert large_packets.carries("127.0.0.1", port, 5.0)
        assert large_packets.carries("127.0.0.1", port, 5.0, 600)
        said = probe.connect("127.0.0.1", port, 5.0)
        assert said["verdict"] == "reachable"
    with pytest.raises(ConnectionRefusedError):
        large_packets.carries("127.0.0.1", port, 5.0)


def test_the_disk_is_that_of_the_directory_that_will_be_made(tmp_path):
    told = probe.facts([], str(tmp_path), str(tmp_path / "runs/of/today"))
    assert told["disk"]["path"] == str(tmp_path) and told["disk"]["writable"]
    assert told["directory"] == str(tmp_path)
    assert probe.facts([], str(tmp_path / "no"), str(tmp_path))["directory"] is None
