"""Two machines with two networks and two workers each: what travels, as what, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, call
from machines import Hosts, needs_hosts, thorough

pytestmark = needs_hosts

SCRIPT = Path(__file__).parents[1] / "cluster" / "scripts" / "travelling.py"
SECOND = "10.67.0"
PASSED = ("KILLS", "TEST_FOLDER", "TEST_EPOCHS")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Hosts]:
    """n1 and n2, which are also 10.67.0.1 and 10.67.0.2 on cables of their own."""
    directory, work = tmp_path / "lab", tmp_path / "work"
    directory.mkdir()
    work.mkdir()
    lab = Lab(directory, 2)
    try:
        lab.up()
        switch = lab._namespace("sw")
        key = (directory / "host_key.pub").read_text()
        for number, name in enumerate(lab.names, start=1):
            space, cable = lab._namespace(name), f"s{number}"
            end = ("type", "veth", "peer", "name", "eth1", "netns", space)
            call("ip", "link", "add", cable, "netns", switch, *end)
            call("ip", "-n", switch, "link", "set", cable, "master", "br0", "up")
            call("ip", "-n", space, "addr", "add", f"{SECOND}.{number}/24", "dev", "eth1")
            call("ip", "-n", space, "link", "set", "eth1", "up")
            with (directory / "known_hosts").open("a") as known:
                known.write(f"{SECOND}.{number} {key}")
        yield Hosts(lab, work)
    finally:
        lab.down()


def sent(hosts: Hosts, name: str, cable: str) -> int:
    """Bytes that a host has sent through a cable."""
    found = call("ip", "-n", hosts.lab._namespace(name), "-s", "-j", "link", "show", cable)
    return json.loads(found)[0]["stats64"]["tx"]["bytes"]


def run(hosts: Hosts, where: str, way: str, kills: str = "") -> tuple[list[dict[str, Any]], str]:
    """What the workers have found, and what was said."""
    hosts.environment |= {"KILLS": kills, "TEST_FOLDER": str(hosts.directory), "TEST_EPOCHS": "4"}
    passed = [word for name in PASSED for word in ("--env", name)]
    options = ("-H", where, *passed, "--seed", "5", "--communication", "host", "--compress", way)
    code, out, err = hosts.run(SCRIPT.read_text(), *options)
    assert code == 0, err + out
    paths = sorted(hosts.directory.glob("[0-9].json"))
    found = [json.loads(path.read_text()) for path in paths]
    for path in paths:
        path.unlink()
    return found, err


@thorough
@pytest.mark.timeout(400)
def test_sums_of_machines_are_compressed_on_the_cable_that_was_chosen(pair: Hosts) -> None:
    plain, _ = run(pair, "n1:2,n2:2", "off")
    first, second = sent(pair, "n2", "eth0"), sent(pair, "n2", "eth1")
    wanted, said = run(pair, "n1:2,n2:2", "bf16")
    assert "gradients travel as bfloat16" in said
    assert len({worker["weights"] for worker in wanted}) == 1
    assert wanted[0]["weights"] != plain[0]["weights"]
    assert [bool(worker["compressed"]) for worker in wanted] == [True, False, True, False]
    assert 0.5 < wanted[2]["sent"] / plain[2]["sent"] < 0.6
    # The first worker of the second machine, then one that sends nothing to the other machine,
    # then the first worker of the first.
    found, said = run(pair, "n1:2,n2:2", "bf16", "0:2:1:4 1:3:2:0 2:0:2:9")
    assert {worker["weights"] for worker in found} == {wanted[0]["weights"]}, said
    assert "3 restarts" in said
    assert sent(pair, "n2", "eth1") - second < wanted[2]["sent"] < sent(pair, "n2", "eth0") - first
    first, second = sent(pair, "n2", "eth0"), sent(pair, "n2", "eth1")
    other, _ = run(pair, f"{SECOND}.1:2,{SECOND}.2:2", "bf16")
    assert {worker["weights"] for worker in other} == {wanted[0]["weights"]}
    assert sent(pair, "n2", "eth0") - first < other[2]["sent"] < sent(pair, "n2", "eth1") - second
