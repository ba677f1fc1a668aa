"""SIGTERM to any process in any phase: exit code 75; the next job goes on to the same weights."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from workers import SCRIPTS, TFRUN, environment

from conftest import THOROUGH, Jobs, wait_until
from tfrun.control.preempted_machines import ONE_REQUEST_SECONDS

GRACE = 20.0
COMMAND = [TFRUN, "-n", "2", "--seed", "3", "--grace", f"{GRACE:.0f}"]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A job that has ended."""

    code: int
    shown: str
    seconds: float
    events: list[dict[str, Any]]

    @property
    def saved(self) -> list[int | None]:
        """The steps that the chief has saved because of the preemption."""
        reports = [event["report"] for event in self.events if event["event"] == "worker_report"]
        return [report.get("step") for report in reports if report["kind"] == "job_saved"]

    @property
    def seconds_after_sigterm(self) -> float:
        """From the first word of the preemption until all of the job was over."""
        asked = [e["time"] for e in self.events if e["event"] in ("wanted_back", "interrupted")]
        return self.events[-1]["time"] - asked[0]

    @property
    def weights(self) -> str:
        (line,) = [line for line in self.shown.splitlines() if line.startswith("WEIGHTS")]
        return line


def run(folder: Path, script: str, fault: str = "", **env: str) -> Ran:
    log = folder / "events.jsonl"
    before = len(log.read_text().splitlines()) if log.exists() else 0
    began = time.monotonic()
    job = subprocess.run(
        [*COMMAND, "--run-dir", str(folder), str(SCRIPTS / script)],
        env=environment({"FAULT": fault, **env}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    lines = log.read_text().splitlines()[before:]
    return Ran(
        code=job.returncode,
        shown=job.stdout,
        seconds=time.monotonic() - began,
        events=[json.loads(line) for line in lines],
    )


# Each job goes on where the one before was preempted.
FITS = {
    "start": ("launcher:start", [None]),
    "first trace": ("worker:trace", [None]),
    "worker": ("worker:1-2", range(22, 28)),
    "chief": ("chief:1-10", range(30, 40)),
    "validation": ("agent:valid", [40]),
    "trace": ("launcher:trace", [40]),
    "re-forming": ("launcher:start", range(50, 60)),
    "between": ("agent:between", [None]),
}
# Others hit the script before its first step, and the launcher, too.
if not THOROUGH:
    del FITS["start"], FITS["trace"]


# The same of a custom loop.
LOOPS = {
    "worker": ("worker:0-5", range(5, 10)),
    "validation": ("launcher:valid", [20]),
}
CHAINS = {"preempt_fit.py": FITS, "preempt_loop.py": LOOPS}
PHASES = [(script, phase) for script, phases in CHAINS.items() for phase in phases]


@functools.cache
def chain(script: str) -> dict[str, Ran]:
    """Runs the script undisturbed, then preempted in each phase and to its end."""
    ran = {}
    with tempfile.TemporaryDirectory() as undisturbed, tempfile.TemporaryDirectory() as folder:
        ran["undisturbed"] = run(Path(undisturbed), script)
        for name, (fault, _) in CHAINS[script].items():
            kill = "1" if name == "re-forming" else ""
            ran[name] = run(Path(folder), script, fault, KILL=kill)
        ran["end"] = run(Path(folder), script)
    return ran


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("script", "phase"), PHASES)
def test_a_job_is_preempted_in_any_phase(script: str, phase: str) -> None:
    job = chain(script)[phase]
    assert job.code == 75, job.shown
    assert "tfrun: preempted by SIGTERM" in job.shown
    assert "Traceback" not in job.shown
    assert len(job.saved) == 1 and job.saved[0] in CHAINS[script][phase][1]
    assert job.seconds_after_sigterm < GRACE


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", CHAINS)
def test_the_weights_are_those_of_an_undisturbed_run(script: str) -> None:
    end = chain(script)["end"]
    assert end.code == 0, end.shown
    assert end.weights == chain(script)["undisturbed"].weights


def test_only_the_machine_or_the_worker_that_was_hit_asks() -> None:
    for phase, (fault, _) in FITS.items():
        job = chain("preempt_fit.py")[phase]
        asked = [event["task"] for event in job.events if event["event"] == "wanted_back"]
        told = [event["signal"] for event in job.events if event["event"] == "interrupted"]
        who = fault.partition(":")[0]
        expected = {"worker": ["worker:1"], "chief": ["worker:0"], "agent": [""], "launcher": []}
        # The worker's handler may tell it as well as the thread.
        assert set(asked) == set(expected[who]), phase
        assert told == (["SIGTERM"] if who == "launcher" else [])


STANDS = """
import os, signal, time
import keras, numpy as np, tensorflow as tf
import tfrun

class Model(keras.Sequential):
    def train_step(self, data):
        @tf.py_function(Tout=tf.int64)
        def stand(step):
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1000)
            return step

        with tf.control_dependencies([stand(self.optimizer.iterations.value)]):
            return super().train_step(tf.nest.map_structure(tf.identity, data))

with tfrun.strategy().scope():
    model = Model([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((10000, 4)), np.ones(10000), batch_size=10, verbose=0)
"""


def test_what_takes_longer_than_the_grace_period_ends_with_it(jobs: Jobs) -> None:
    """The only worker is in the middle of a step, whose end nobody can wait for."""
    jobs.script(STANDS)
    done = jobs.run("--run-dir", "run", "--grace", "4", "train.py")
    assert done.returncode == 143, done.stderr
    assert "what was trained could not be saved: it took more than 4 s" in done.stderr
    lines = (jobs.directory / "run" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (asked,) = [event["time"] for event in events if event["event"] == "wanted_back"]
    assert 4 <= events[-1]["time"] - asked < 4 + 5


UNSAVED = """
import os, pathlib, shutil, signal, time
import keras, numpy as np
import tfrun

class Full(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5 and tfrun.world().round == 0:
            folder = pathlib.Path(os.environ["TFRUN_RUN_DIR"], "checkpoints")
            shutil.rmtree(folder, ignore_errors=True)
            folder.write_text("in the way")
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((10000, 4)), np.ones(10000), batch_size=10, verbose=0, callbacks=[Full()])
"""


def test_what_cannot_be_saved_is_no_exit_code_75(jobs: Jobs) -> None:
    jobs.script(UNSAVED)
    process = jobs.start("--run-dir", "run", "train.py")
    log = jobs.directory / "run" / "events.jsonl"
    wait_until(lambda: log.exists() and "job_not_saved" in log.read_text(), "it cannot be saved")
    assert process.poll() is None  # it goes on trying
    for _ in range(2):  # the first one is what the worker has asked for already
        process.send_signal(signal.SIGTERM)
        time.sleep(ONE_REQUEST_SECONDS + 0.1)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 143
    assert "what was trained could not be saved: " in stderr and "checkpoints" in stderr
