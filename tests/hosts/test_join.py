"""A cluster by hand: `tfrun serve` on one host, `tfrun join` on the others, with TLS."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest
from lab import TFRUN, certificate
from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

SCRIPT = Path(__file__).parents[1] / "cluster" / "scripts" / "elastic_train.py"
PORT = "10.66.0.1:7000"
SECONDS = 60


class Joined:
    """A `tfrun join` on a host."""

    def __init__(self, hosts: Hosts, name: str, *options: str) -> None:
        self.path = hosts.lab.directory / f"join-{name}"
        command = [TFRUN, "join", PORT, *options]
        with self.path.open("ab") as out:
            args = (name, command, hosts.directory, hosts.environment, out, out)
            self.process = hosts.lab.start(*args)

    @property
    def said(self) -> str:
        return self.path.read_text()


def processes_with(secret: str) -> list[str]:
    """Returns the processes whose arguments or environment have the secret, of all that run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            text = " ".join((*process.cmdline(), *process.environ().values()))
            if secret in text:
                found.append(text[:200])
    return found


@thorough
@pytest.mark.timeout(300)
def test_a_cluster_by_hand(hosts: Hosts) -> None:
    cert, key = certificate(hosts.directory, "10.66.0.1")
    hosts.environment |= {"WAITS": "0:20:agent_lost:1"}
    tls = ("--tls-cert", cert, "--tls-key", key)
    (hosts.directory / "wrong").write_text("another-token-of-length")
    (hosts.directory / "wrong").chmod(0o600)
    trust = ("--tls-ca", cert, "--token-file")
    early = Joined(hosts, "n2", *trust, "wrong")  # before anybody listens
    wait_until(lambda: "connection refused" in early.said, "it waits for the port", SECONDS)
    process = hosts.start(
        *(SCRIPT.read_text(), "serve", "-n", "3", "--listen", PORT, *tls),
        *("--run-dir", "run", "--seed", "5"),
    )
    joined = []
    try:
        wait_until((hosts.directory / "run" / "token").exists, "there is a token", SECONDS)
        assert early.process.wait(SECONDS) == 1
        assert "TFRUN-320: the token is wrong" in early.said
        joined = [Joined(hosts, name, *trust, "run/token") for name in ("n2", "n3")]
        wait_until((hosts.directory / "waiting-0").exists, "the chief waits", SECONDS)
        token = (hosts.directory / "run" / "token").read_text().strip()
        assert not processes_with(token)
        hosts.kill(joined[1].process)  # with all that it has started
        hosts.until_said("the agent n3 was lost.*; waiting for n3, at most 600 s")
        joined.append(Joined(hosts, "n3", *trust, "run/token"))
        code, out, err = hosts.end(process)
        assert code == 0, err
        assert "ended with 3" in out
        assert "resumed at step 20 with 3 workers" in err
        for machine in (joined[0], joined[2]):
            assert machine.process.wait(SECONDS) == 0, machine.said
            assert "tfrun: the job is over" in machine.said
        logs = [
            p for p in (hosts.directory / "run").rglob("*") if p.is_file() and p.name != "token"
        ]
        assert not [path for path in logs if token in path.read_text(errors="replace")]
    finally:
        for started in (early.process, process, *(machine.process for machine in joined)):
            hosts.kill(started)


@thorough
@pytest.mark.timeout(300)
def test_a_job_grows_when_somebody_joins(hosts: Hosts) -> None:
    hosts.environment |= {"WAITS": "0:20:regroup:1"}
    process = hosts.start(
        *(SCRIPT.read_text(), "serve", "-n", "1:2", "--listen", PORT, "--run-dir", "run"),
        *("--seed", "5", "--join-timeout", "16"),
    )
    late = None
    try:
        wait_until((hosts.directory / "waiting-0").exists, "it trains alone", SECONDS)
        late = Joined(hosts, "n2", "--token-file", "run/token")
        code, out, err = hosts.end(process)
        assert code == 0, err
        assert "tfrun: n2 joined; resumed at step 20 with 2 workers" in err
        assert "ended with 2" in out
        assert late.process.wait(SECONDS) == 0, late.said
        assert [event["lost_steps"] for event in hosts.events("grown")] == [0]
    finally:
        for started in (process, *([late.process] if late else [])):
            hosts.kill(started)
