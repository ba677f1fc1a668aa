"""Options whose effect shows where something else happens: a machine is late or lost, bytes travel.

`PROVED` in table.py says for which options these tests, and tests elsewhere, stand.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from conftest import Jobs, wait_until

ROOT = Path(__file__).parents[2]
TRAVELLING = ROOT / "tests/cluster/scripts/travelling.py"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
SECONDS = 90

# Two machines of one worker each. The second one is lost, with all it has, in the first round.
LOSES_ITS_MACHINE = """
import os, pathlib, time
import psutil
rank, round = int(os.environ["RANK"]), int(os.environ["TFRUN_ROUND"])
print("in round", round, "of", os.environ["WORLD_SIZE"], flush=True)

class UnavailableError(Exception):
    pass

def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

here, there = pathlib.Path("is-here"), pathlib.Path("agent")
if round == 0 and rank == 1:
    wait(here.exists)
    agent = psutil.Process().parent().parent()
    pathlib.Path("agent-").write_text(str(agent.pid))
    pathlib.Path("agent-").rename(there)
    agent.suspend()  # it would end this worker once its own parent has gone, and say so
    if "join" in agent.parent().cmdline():  # which would start another agent
        agent.parent().kill()
    agent.kill()
    wait(lambda: False)
if round == 0:
    here.touch()
    wait(there.exists)
    wait(lambda: not psutil.pid_exists(int(there.read_text())))
    raise UnavailableError("a peer has gone")
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def test_who_does_not_come_in_time_is_not_waited_for(jobs: Jobs) -> None:
    jobs.script("print('never')")
    began = time.monotonic()
    where = f"127.0.0.1:{free_port()}"
    done = jobs.run("serve", "-n", "2", "--listen", where, "--join-timeout", "6", "train.py")
    assert done.returncode == 1 and "TFRUN-303" in done.stderr, done.stderr
    assert "never" not in done.stdout
    assert time.monotonic() - began >= 6


def test_a_lost_machine_is_waited_for(jobs: Jobs) -> None:
    jobs.script(LOSES_ITS_MACHINE)
    port, token = free_port(), jobs.directory / "run" / "token"
    serving = jobs.start(
        *("serve", "-n", "1:2", "--listen", f"127.0.0.1:{port}", "--run-dir", "run"),
        *("--rejoin-timeout", "5", "train.py"),
        env=QUIET,
    )
    wait_until(token.exists, "there is a token", SECONDS)
    joining = jobs.start("join", f"127.0.0.1:{port}", "--token-file", token, env=QUIET)
    out, err = serving.communicate(timeout=SECONDS)
    assert serving.returncode == 0, err
    assert out == "in round 0 of 2\nin round 1 of 1\n"
    lines = (jobs.directory / "run" / "events.jsonl").read_text().splitlines()
    (recovered,) = (e for e in map(json.loads, lines) if e["event"] == "recovered")
    assert recovered["seconds"] >= 5, err
    joining.communicate(timeout=SECONDS)


def test_compressed_gradients_are_half_the_bytes(jobs: Jobs, tmp_path: Path) -> None:
    sent = {}
    for way in ("off", "bf16"):
        folder = tmp_path / way
        folder.mkdir()
        options = ("-n", "2", "--communication", "host", "--compress", way)
        env = {"TFRUN_SHARED_MEMORY": "0", "TEST_FOLDER": str(folder), "TEST_EPOCHS": "2", **QUIET}
        done = jobs.run(*options, "--run-dir", folder / "run", TRAVELLING, env=env)
        assert done.returncode == 0, done.stderr
        sent[way] = json.loads((folder / "0.json").read_text())["sent"]
    assert 0.45 < sent["bf16"] / sent["off"] < 0.65, sent  # the first values travel whole


@pytest.mark.timeout(300)
def test_the_example_trains_the_same_bits_again(jobs: Jobs) -> None:
    shown = []
    for run in ("one", "another"):
        command = ("-n", "2", "--deterministic", "--run-dir", run, ROOT / "examples/digits.py")
        done = jobs.run(*command, "--epochs", "2", env=QUIET, timeout=2 * SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        shown.append(done.stdout.splitlines()[-1])
    assert shown[0] == shown[1]
