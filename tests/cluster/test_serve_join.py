"""`tfrun serve` and `tfrun join` on this machine: two machines, as far as they know."""

from __future__ import annotations

import json
import os
import socket
import subprocess

import psutil

from conftest import Jobs, wait_until

SCRIPT = """
import json, os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
context = tf.distribute.get_replica_context
reduced = strategy.run(tf.function(lambda: context().all_reduce("SUM", tf.constant(1.0))))
total = float(strategy.experimental_local_results(reduced)[0])
print(json.dumps([total, os.environ["LOCAL_WORLD_SIZE"], os.getcwd()]), flush=True)
"""
SECONDS = 60


def test_a_cluster_by_hand(jobs: Jobs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    jobs.script(SCRIPT)
    elsewhere = jobs.directory / "elsewhere"
    token = jobs.directory / "run" / "token"
    address = f"127.0.0.1:{port}"
    serving = jobs.start(
        *("serve", "-n", 3, "--listen", address, "--run-dir", "run", "--log-all", "train.py")
    )
    wait_until(token.exists, "there is a token", SECONDS)
    # A directory without the script is found out there, and is told to both.
    elsewhere.mkdir()
    lost = jobs.start("join", address, "--token-file", token, cwd=elsewhere)
    out, err = lost.communicate(timeout=SECONDS)
    assert lost.returncode == 1, (out, err)
    assert "TFRUN-305" in err and "'train.py' does not exist" in err
    readable = jobs.directory / "readable"
    readable.write_text(token.read_text())
    readable.chmod(0o644)
    refused = jobs.run("join", address, "--token-file", readable)
    assert refused.returncode == 2 and "chmod 600" in refused.stderr
    joining = jobs.start("join", address, "--token-file", token, "--slots", 2)
    commands = [process.cmdline() for process in _all_of(serving, joining)]
    assert commands and not [c for c in commands if token.read_text().strip() in " ".join(c)]
    out, err = serving.communicate(timeout=SECONDS)
    assert serving.returncode == 0, (out, err)
    assert "tfrun join" in err and str(token) in err
    said = sorted(json.loads(line.partition("] ")[2]) for line in out.splitlines())
    here = os.path.realpath(jobs.directory)
    assert said == [[3.0, "3", here]] * 3  # both "machines" have one address, so are one
    _, err = joining.communicate(timeout=SECONDS)
    assert joining.returncode == 0 and "tfrun: the job is over" in err


def _all_of(*started: subprocess.Popen):
    for process in started:
        found = psutil.Process(process.pid)
        yield from (found, *found.children(recursive=True))
