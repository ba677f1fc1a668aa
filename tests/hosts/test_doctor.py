"""tfrun doctor on three hosts: what their network does is found, with the machine's name."""

from __future__ import annotations

import json
import os
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


def test_a_slow_network_card(hosts: Hosts) -> None:
    space = hosts.lab._namespace("n2")
    limit = ("rate", "80mbit", "burst", "64kb", "latency", "400ms")
    call("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit)
    code, said = doctor(hosts, "-H", "n[1-3]")
    assert code == 0
    slow = [f["where"] for f in said["findings"] if "MB/s with the others" in f["what"]]
    assert slow == ["n2"], (said["sum"], said["pairs"])
