"""64 hosts are contacted at the same time, although all ways lead through one SSH server."""

from __future__ import annotations

import os

from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

COUNT = 64
# Instead of a Python: says that it has come, and leaves when the gate opens.
ARRIVE = """#!/bin/sh
: > {directory}/arrived-$$
read line < {directory}/gate
exit 1
"""
SECONDS = 100


def most_in_flight(log: str) -> int:
    """Returns the most handshakes that an sshd had begun and not ended at one moment."""
    pending = most = 0
    for line in log.splitlines():
        pending += line.startswith("Connection from ")
        pending -= line.startswith(("Accepted publickey", "Connection closed by", "drop "))
        most = max(most, pending)
    return most


@thorough
def test_64_hosts_at_once(hosts: Hosts) -> None:
    stub = hosts.directory / "python"
    stub.write_text(ARRIVE.format(directory=hosts.directory))
    stub.chmod(0o755)
    gate = hosts.directory / "gate"
    os.mkfifo(gate)
    process = hosts.start("", "-H", f"crowd-[01-{COUNT}]", "--remote-python", str(stub))
    try:

        def all_there() -> bool:
            return len(list(hosts.directory.glob("arrived-*"))) >= COUNT

        wait_until(all_there, "all have arrived", SECONDS)
        log = (hosts.lab.directory / "n2.sshd.log").read_text()
        # Its MaxStartups (10:30:100) sends some away, which come again.
        assert most_in_flight(log) >= 8, log
        with gate.open("w") as file:
            file.write("go\n" * COUNT)
        code, _, err = hosts.end(process, 40)
        assert code == 1 and "TFRUN-301" in err and "crowd-" in err
    finally:
        hosts.kill(process)
