"""`tfrun drill --faults cut -H …`: the connection to a host breaks, and the script goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machines import Hosts, needs_hosts, thorough

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


@thorough
@pytest.mark.timeout(400)
def test_a_connection_is_cut(hosts: Hosts) -> None:
    (hosts.directory / "digits.py").write_text(EXAMPLE.read_text())
    options = ("-H", "n1,n2,n3", "-n", "2:3", "--faults", "cut", "--seed", "7")
    process = hosts.start(
        *("", "drill", *options, "--run-dir", "run", "--json", "report.json"),
        script=("digits.py", "--epochs", "12"),
    )
    code, out, err = hosts.end(process, 300)
    print(out)  # pytest shortens long strings
    assert code == 0, err
    report = json.loads((hosts.directory / "report.json").read_text())
    (row,) = report["rows"]
    assert (row["fault"], row["ok"]) == ("cut", True)
