"""The job's disk is full for a time: the job goes on, and so do its logs, events and ledger."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import TFRUN, Jobs
from tfrun.observe.events import read_events

# Fills the disk after step 4, and makes room after step 12.
SCRIPT = """
import os, pathlib, signal, time
import keras, numpy as np, tfrun
from tfrun.job.reports import WorkerNotice
from tfrun.process import channel

with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.arange(320).reshape(80, 4).astype("float32") / 320
ballast = pathlib.Path("run/ballast")

class Full(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step, here = int(self.model.optimizer.iterations), tfrun.world()
        if step == 4 and here.is_chief and here.round == 0:
            with ballast.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(100))  # to the last byte
                except OSError:
                    pass
        if step == 5 and not here.round:
            while not ballast.exists():
                time.sleep(0.01)
        if (step, here.rank, here.round) == (9, 1, 0) and os.environ["HOW"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 12 and here.is_chief:
            time.sleep(1)
            if os.environ["HOW"] != "stays":
                ballast.unlink()
        if step in (6, 20) and here.is_chief:
            channel.emit(WorkerNotice(text="x" * 9000))  # an event of several pages of the disk
        print("step", step, "." * 2000, flush=True)

data = tfrun.Dataset.from_arrays((x, x[:, :1]), batch_size=4, shuffle=True, seed=1)
model.fit(data, epochs=2, verbose=0, callbacks=[Full()])
"""


@pytest.fixture
def disk(jobs: Jobs) -> Iterator[Path]:
    """The run directory, on a disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("ONLY ROOT can mount a small disk: a full one is NOT TESTED")
    folder = jobs.directory / "run"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("NOTHING CAN BE MOUNTED here: a full disk is NOT TESTED")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def ledger(run_dir: Path) -> subprocess.CompletedProcess:
    command = [TFRUN, "ledger", str(run_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def train(jobs: Jobs, how: str) -> str:
    """Returns what the job has said."""
    options = ("-n", 2, "--ledger", "--checkpoint-every", "off", "--run-dir", "run")
    done = jobs.run(*options, jobs.script(SCRIPT), env={"HOW": how})
    print(done.stderr)  # pytest shortens long strings
    assert done.returncode == 0
    return done.stderr


@pytest.mark.parametrize("how", ["", "dies"])
def test_a_disk_that_is_full_for_a_time(jobs: Jobs, disk: Path, how: str) -> None:
    said = train(jobs, how)
    for name in ("events.jsonl", "worker-0.log"):
        assert f"{name} is not written any more: No space left on device" in said
        assert f"{name} is written again" in said
    for rank in range(2):
        log = (disk / f"logs/worker-{rank}.log").read_text()
        assert re.search(r"--- [\d,]+ bytes are missing here: No space left on device ---", log)
        assert "step 4 " in log and "step 40 " in log
        assert not all(f"step {step} " in log for step in range(1, 41))
    kinds = [event["event"] for event in read_events(disk / "events.jsonl")]
    assert "missing" in kinds and kinds[-1] == "job_ended"
    proof = ledger(disk)  # its lines have waited for room, those of the second round as well
    assert proof.returncode == 0, proof.stdout
    assert "every sample exactly once · 2 epochs" in proof.stdout


def test_a_disk_that_stays_full(jobs: Jobs, disk: Path) -> None:
    train(jobs, "stays")
    (disk / "ballast").unlink()
    proof = ledger(disk)
    assert proof.returncode == 1
    for rank in range(2):
        assert f"INCOMPLETE: worker {rank} of round 1 of job 1: its file is empty" in proof.stdout
    assert "incomplete: what is missing here may have been trained" in proof.stdout
