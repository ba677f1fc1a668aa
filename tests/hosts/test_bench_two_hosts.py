"""The two hosts of bench/networks.py: what runs on them, and that they are gone afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from machines import needs_hosts, thorough

from conftest import wait_until

pytestmark = needs_hosts

BENCH = Path(__file__).parents[2] / "bench"
WAITS = """
import sys
from two_hosts import TwoHosts
with TwoHosts() as hosts:
    if sys.argv[1] == "error":
        raise ValueError("on purpose")
    tell = "hostname > " + sys.argv[2] + "/$0; sleep 600"
    commands = [["sh", "-c", tell, str(i)] for i in (1, 2)]
    hosts.run(commands, [{}, {}])
"""
SENDS = """
import json, os
import networks
from measured import quantities
from two_hosts import TwoHosts
os.environ |= {"BENCH_EPOCHS": "2", "BENCH_EPOCH_STEPS": "3"}
found = {}
with TwoHosts() as hosts:
    links = networks._as_the_kernel_can(hosts, networks.LINKS)
    these = networks.contenders(hosts, "cnn", links)
    for name in (networks.OURS, "tfrun, --compress bf16"):
        with quantities(apart=True) as read:
            found[name] = read(these[name]()).sent
print(json.dumps(list(found.values())))
"""
SECONDS = 30


def spaces(pid: int) -> list[str]:
    """The namespaces that a process has made."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name.startswith(f"tfrun-bench-{pid}-")]


def started(folder: Path, how: str = "waits") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", WAITS, how, str(folder)],
        cwd=BENCH,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_both_run(folder: Path) -> None:
    def both() -> bool:
        return all((folder / n).exists() and (folder / n).read_text() for n in "12")

    wait_until(both, "both commands run", SECONDS)
    assert [(folder / n).read_text().strip() for n in "12"] == ["n1", "n2"]


@thorough
@pytest.mark.timeout(300)
def test_a_job_of_two_hosts_sends_what_it_should_on_every_link() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SENDS],
        **{"cwd": BENCH, "capture_output": True, "text": True, "timeout": 240, "check": False},
    )
    assert done.returncode == 0, done.stderr
    whole, half = json.loads(done.stdout.splitlines()[-1])
    assert len(whole) == len(half) == 5  # links
    megabytes = 11.08  # the gradients of the small CNN, in float32
    for sent in whole:
        assert sent / 1e6 == pytest.approx(megabytes, rel=0.05)
    for sent in half:
        assert sent / 1e6 == pytest.approx(megabytes / 2, rel=0.05)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_they_go_with_a_signal(tmp_path: Path, sent: signal.Signals) -> None:
    process = started(tmp_path)
    until_both_run(tmp_path)
    assert len(spaces(process.pid)) == 2
    process.send_signal(sent)
    process.communicate(timeout=SECONDS)
    assert process.returncode
    assert not spaces(process.pid)


def test_they_go_with_an_error(tmp_path: Path) -> None:
    process = started(tmp_path, "error")
    _, said = process.communicate(timeout=SECONDS)
    assert "on purpose" in said and not spaces(process.pid)


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    process = started(tmp_path)
    until_both_run(tmp_path)
    process.kill()
    process.communicate(timeout=SECONDS)
    assert len(spaces(process.pid)) == 2
    started(tmp_path, "error").communicate(timeout=SECONDS)
    assert not spaces(process.pid)
