"""tfrun doctor on three hosts: what their network does is found, with the machine's name."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from lab import TFRUN, call
from machines import Hosts, needs_hosts, thorough

pytest_plugins = ["host_fixtures"]
pytestmark = [needs_hosts, thorough]


def doctor(hosts: Hosts, *args: str) -> tuple[int, dict[str, Any]]:
    out = hosts.directory / "said"
    with out.open("wb") as file, open(os.devnull, "wb") as err:  # noqa: PTH123
        command = [TFRUN, "doctor", "--json", *args]
        process = hosts.lab.start("n1", command, hosts.directory, hosts.environment, file, err)
        code = process.wait(100)
    return code, json.loads(out.read_text())


def errors(said: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f["where"], f["what"]) for f in said["findings"] if f["severity"] == "error"]


def test_good_hosts(hosts: Hosts) -> None:
    code, said = doctor(hosts, "-H", "n[1-3]")
    assert (code, said["fit"], errors(said)) == (0, True, [])
    assert [said["machines"][name]["host"] for name in ("n1", "n2", "n3")] == ["n1", "n2", "n3"]
    assert said["machines"]["n2"]["address"] == "10.66.0.2"
    assert said["machines"]["n3"]["names"]["n1"] == ["10.66.0.1"]
    assert said["sum"]["machines"] == 3 and said["sum"]["bytes_per_second"] > 1e6


def test_a_firewall_and_a_host_that_is_not_there(hosts: Hosts) -> None:
    hosts.lab.drop("n3", "1024-65535")
    code, said = doctor(hosts, "-H", "n[1-3],nowhere")
    assert (code, said["fit"]) == (1, False)
    found = dict(errors(said))
    assert "its name does not resolve" in found.pop("nowhere")
    assert set(found) == {"n1 → n3", "n2 → n3"}
    assert all("silently dropped" in what for what in found.values())


def test_large_packets_are_lost_between_two_hosts(hosts: Hosts) -> None:
    hosts.lab.narrow("n2", "n3", 1437)
    code, said = doctor(hosts, "-H", "n[1-3]")
    assert (code, said["fit"]) == (1, False)
    lost = "packets of more than 1437 bytes are lost on the way, and nobody says so"
    assert errors(said) == [("n2 → n3", lost), ("n3 → n2", lost)]


def test_ssh_itself_is_where_large_packets_are_lost(hosts: Hosts) -> None:
    hosts.lab.narrow("n1", "n3", 1280)
    began = time.monotonic()
    code, said = doctor(hosts, "-H", "n[1-3]")
    assert time.monotonic() - began < 60
    assert (code, said["fit"]) == (1, False)
    ((where, what),) = errors(said)
    assert where == "this machine → n3, by SSH" and "more than 1280 bytes are lost" in what
    assert set(said["machines"]) == {"n1", "n2"}  # and these were looked at as ever


def test_the_disk_is_that_of_the_job(lone_hosts: Hosts) -> None:
    """Not that of the directory in which SSH begins."""
    code, said = doctor(lone_hosts, "-H", "n1,n2", "--run-dir", "runs/today")
    assert code == 0, errors(said)
    assert said["machines"]["n2"]["disk"]["path"] == str(lone_hosts.directory)
    code, said = doctor(lone_hosts, "-H", "n1,n2", "--remote-dir", "/not/there")
    assert [(f["where"], f["what"]) for f in said["findings"] if "directory" in f["what"]] == [
        (name, "the working directory is not there") for name in ("n1", "n2")
    ]


def test_a_slow_network_card(hosts: Hosts) -> None:
    space = hosts.lab._namespace("n2")
    limit = ("rate", "80mbit", "burst", "64kb", "latency", "400ms")
    call("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit)
    code, said = doctor(hosts, "-H", "n[1-3]")
    assert code == 0
    slow = [f["where"] for f in said["findings"] if "MB/s with the others" in f["what"]]
    assert slow == ["n2"], (said["sum"], said["pairs"])
