"""Workers, servers and the chief of a parameter-server job die: what stops, and what does not."""

from __future__ import annotations

import json
import re

from conftest import Jobs

SCRIPT = """
import json, os, signal, sys
import tensorflow as tf, tfrun
from tfrun.job.reports import Applied, FirstStep, Resumed
from tfrun.process import channel

def kill(name):
    events = map(json.loads, open(os.environ["TFRUN_RUN_DIR"] + "/events.jsonl"))
    pids = [e["pid"] for e in events if e["event"] == "worker_started" and e["task"] == name]
    os.kill(pids[-1], signal.SIGKILL)

def steps(count):
    for _ in range(count):
        coordinator.schedule(step)
    coordinator.join()

round = tfrun.world().round
strategy = tfrun.strategy()
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total, other = tf.Variable(0.0), tf.Variable(0.0)

@tf.function
def step():
    total.assign_add(1.0)
    other.assign_add(2.0)

print("round", round, total.device[-24:], other.device[-24:])
if round:
    channel.emit(Resumed(key=[0, 0, 30], step=30))
    channel.wait_for("go", 10)
steps(10)
channel.emit(FirstStep(step=31 if round else 10))
print("after", round, total.numpy())
if round == 0:
    for name in ("worker:0", "worker:1"):
        kill(name)
        steps(15)
    print("counted", total.numpy(), other.numpy())
    channel.emit(Applied(key=[0, 0, 40], step=40))
    kill("ps:1")
    steps(1000)
    print("never")
if round == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_are_replaced_and_servers_are_not(jobs: Jobs) -> None:
    jobs.script(SCRIPT)
    result = jobs.run("-n", 2, "--ps", 2, "--run-dir", "run", "train.py")
    assert result.returncode == 0, result.stderr
    devices = "ps/replica:0/task:{}/device:CPU:0"
    placed = [devices.format(index)[-24:] for index in range(2)]
    first, *lines = result.stdout.splitlines()
    assert first == f"round 0 {placed[0]} {placed[1]}"
    # Of the later rounds only what comes after the state has been restored is shown.
    assert lines == ["after 0 10.0", "counted 40.0 80.0", "after 1 10.0", "after 2 10.0"]

    said = result.stderr
    assert "ERROR" not in said and "Traceback" not in said, said
    assert "GRPC" not in said and "grpc_" not in said, said
    for index in range(2):
        assert f"tfrun: worker {index} killed by SIGKILL; started again at its address\n" in said
    assert "ps 1 killed by SIGKILL at step 40; resumed at step 30 with 2 workers" in said
    assert "and does 10 steps again" in said
    assert "chief 0 killed by SIGKILL at step 31; resumed at step 30" in said
    assert "2 restarts · 2 workers replaced" in said

    run = jobs.directory / "run"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    started = [e["task"] for e in events if e["event"] == "worker_started" and e["round"] == 0]
    assert sorted(started[5:]) == ["worker:0", "worker:1"]
    assert [e["lost_steps"] for e in events if e["event"] == "recovered"] == [10, 1]
    assert "--- started again ---" in (run / "logs/worker-1.log").read_text()
    log = (run / "logs/chief-0.log").read_text()
    assert "INFO:tensorflow:" in log and "failed with" in log and "ERROR:tensorflow:" not in log


def test_without_restarts_the_first_end_is_the_last(jobs: Jobs) -> None:
    jobs.script(SCRIPT)
    result = jobs.run("-n", 2, "--ps", 2, "--max-restarts", 0, "train.py")
    assert result.returncode == 137, result.stderr
    # The script kills both of them at once: which of both is seen first, nobody promises.
    assert re.search(r"worker [01] failed first: killed by SIGKILL", result.stderr), result.stderr
    assert "device_count" not in result.stderr  # what TensorFlow's server says of its options
