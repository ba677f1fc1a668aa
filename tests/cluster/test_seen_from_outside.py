"""A job seen from another terminal: its time, its straggler, its stacks, its end."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conftest import Jobs, wait_until

# It trains until a file says that it is enough; its second worker may be slow at reading.
SCRIPT = """
import os, pathlib, time
import keras, numpy as np, tensorflow as tf, tfrun

rank = tfrun.world().rank
with tfrun.strategy().scope():
    given = hidden = keras.Input((256,))
    shared = keras.layers.Dense(256, "tanh")  # much to compute, little to send
    for _ in range(100 if os.environ["MODE"] == "compute" else 1):
        hidden = shared(hidden)
    model = keras.Model(given, keras.layers.Dense(1)(hidden))
    model.compile("sgd", "mse")

def lag(x):
    if rank == 1:
        time.sleep(0.05)
    return x

def read(x, y):
    found = tf.numpy_function(lag, [x], x.dtype)
    found.set_shape(x.shape)
    return found, y

x = np.random.default_rng(0).normal(size=(1280, 256)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(128)
if os.environ["MODE"] == "input":
    data = data.map(read)

class Enough(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = pathlib.Path("enough").exists()

model.fit(data, epochs=10_000, verbose=0, callbacks=[Enough()])
print("the script has ended")
"""


def events(jobs: Jobs, kind: str) -> list[dict[str, Any]]:
    path = jobs.directory / "run/events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in found if event["event"] == kind]


def tfrun(jobs: Jobs, *args: str) -> subprocess.CompletedProcess:
    return jobs.run(*args, timeout=30)


def status(jobs: Jobs) -> dict[str, Any]:
    return json.loads(tfrun(jobs, "status", "run", "--json").stdout)


def pid_of(jobs: Jobs, task: str) -> int:
    return [e["pid"] for e in events(jobs, "worker_started") if e["task"] == task][-1]


@pytest.fixture
def job(jobs: Jobs, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen]:
    jobs.script(SCRIPT)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py", env={"MODE": request.param})
    try:
        wait_until(lambda: len(events(jobs, "progress")) > 1, "it trains", 60)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        print(*process.communicate(timeout=30))  # pytest shows it when the test has failed


@pytest.mark.parametrize("job", ["input"], indirect=True)
def test_slow_input_is_named_and_the_job_answers_until_its_end(
    jobs: Jobs, job: subprocess.Popen
) -> None:
    (straggler,) = wait_until(lambda: events(jobs, "straggler"), "the slow one is named")
    assert (straggler["task"], straggler["slow_at"]) == ("worker:1", "input")

    now = status(jobs)
    assert (now["live"], now["state"], now["workers"]["up"]) == (True, "training", 2)
    first, second = now["tasks"]
    assert second["slow_at"] == "input"
    assert second["split"]["input"] > 0.01  # it sleeps for 50 ms before each batch that it reads
    # The first one waits for it, which is not its own time.
    assert first["split"]["communication"] > first["split"]["input"]
    assert first["own_seconds"] < second["own_seconds"] / 1.5
    assert first["rss_bytes"] > 100 << 20

    shown = tfrun(jobs, "status", "run").stdout
    assert "worker 1 is slow (input)" in shown
    assert shown.splitlines()[0].startswith("train · training · round 0 · 2 of 2 workers up")

    mode = (jobs.directory / "run/control.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600

    stacks = tfrun(jobs, "stacks", "run").stdout
    assert "train.py" in stacks
    assert "in run_fit" in stacks
    assert "another thread" not in stacks
    assert len(events(jobs, "worker_started")) == 2  # nobody has died of being asked

    (jobs.directory / "enough").touch()
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out) == (0, "the script has ended\n")
    assert err.count("worker 1 slows the others down: its input takes the time") == 1
    now = status(jobs)
    assert (now["live"], now["state"], now["exit_code"]) == (False, "finished", 0)
    parts = now["goodput"]["parts"]
    assert parts["training"] > 1
    assert parts["start"] > 0.5
    assert parts["tracing"] > 0.01
    assert sum(parts.values()) == pytest.approx(now["goodput"]["seconds"], abs=0.1)
    assert not (jobs.directory / "run/control.json").exists()
    found = tfrun(jobs, "logs", "run", "--rank", "0", "--grep", "has ended").stdout
    assert found == "the script has ended\n"
    refused = tfrun(jobs, "stop", "run")
    assert (refused.returncode, refused.stderr[:16]) == (2, "tfrun: TFRUN-109")


def test_a_worker_that_holds_the_interpreter_shows_its_stacks(jobs: Jobs) -> None:
    """No thread of its can run Python then."""
    jobs.script("import re\nprint('now', flush=True)\nre.match('(a+)+$', 40 * 'a' + 'b')\n")
    process = jobs.start("-n", 1, "--run-dir", "run", "train.py")
    try:
        wait_until(lambda: "now" in tfrun(jobs, "logs", "run").stdout, "it is stuck", 60)
        assert re.search(r"train.py\", line 3, in <module>", tfrun(jobs, "stacks", "run").stdout)
        assert "-- another thread --" in tfrun(jobs, "stacks", "run", "--threads").stdout
        assert len(events(jobs, "worker_started")) == 1
    finally:
        process.kill()
        process.communicate(timeout=30)


@contextmanager
def throttled(pid: int) -> Iterator[None]:
    """Stops a process for eight ninths of the time, as a limit of its container would.

    Of the time that has passed, not of what was meant: on a machine that has more to do this thread
    comes late, and a process that has rested is let run before the others. For times that are short
    and differ: long or equal ones may all stop it in the same short part of its steps, which is
    then rightly named.
    """
    over = threading.Event()
    chance = random.Random(0)

    def throttle() -> None:
        while not over.is_set():
            began = time.monotonic()
            over.wait(chance.uniform(0.001, 0.004))
            os.kill(pid, signal.SIGSTOP)
            over.wait(8 * (time.monotonic() - began))
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(300)  # on a machine that has more to do, sixty steps take their time
@pytest.mark.parametrize("job", ["compute"], indirect=True)
def test_a_slow_processor_is_named_a_death_is_seen_and_stop_saves(
    jobs: Jobs, job: subprocess.Popen
) -> None:
    with throttled(pid_of(jobs, "worker:1")):
        found = wait_until(lambda: events(jobs, "straggler"), "the slow one is named", 200)
    assert (found[0]["task"], found[0]["slow_at"]) == ("worker:1", "compute")

    os.kill(pid_of(jobs, "worker:1"), signal.SIGKILL)
    wait_until(lambda: events(jobs, "recovered"), "it goes on")
    steps = wait_until(lambda: [e for e in events(jobs, "progress") if e["round"]], "steps")
    now = status(jobs)
    assert (now["state"], now["restarts"], now["round"]["number"]) == ("training", 1, 1)
    assert now["rounds"][0]["how"].startswith("worker 1 killed by SIGKILL")
    assert now["training"]["step"] >= steps[0]["step"]
    assert now["goodput"]["parts"]["recovery"] > 0

    assert tfrun(jobs, "stop", "run").stdout == "the job saves its state and ends\n"
    job.communicate(timeout=60)
    assert job.returncode == 75
    now = status(jobs)
    assert (now["state"], now["exit_code"]) == ("preempted", 75)
    listed = jobs.run("ls", ".", timeout=30).stdout
    assert listed.splitlines()[1].split()[:2] == ["run", "preempted"]
