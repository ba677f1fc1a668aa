"""Hangs, preemption, and jobs that are started again: the same weights at the end."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

from conftest import Jobs
from tfrun.observe.monitor import view_of

SCRIPT = str(SCRIPTS / "recovery_small.py")
# exec: the launcher's process id is the shell's own.
SHELL = 'LAUNCHER=$$ exec "$@"'


def run(
    folder: Path,
    *options: str,
    fault: str = "",
    exit_code: int = 0,
    workers: int = 2,
    state: Path | None = None,
    script: str = SCRIPT,
) -> str:
    command = [TFRUN, "-n", str(workers), "--run-dir", str(folder), *options, script]
    return shown_by(
        ["sh", "-c", SHELL, "sh", *command],
        {"FAULT": fault, **({"TFRUN_STATE_DIR": str(state)} if state else {})},
        timeout=100,
        exit_code=exit_code,
    )


def weights(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("WEIGHTS")]
    assert line.endswith("[0, 1, 2]")
    return line


@functools.cache
def undisturbed(folder: Path) -> str:
    return weights(run(folder, "--seed", "3"))


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


def test_a_worker_that_hangs_is_replaced(tmp_path: Path, wanted: str) -> None:
    shown = run(tmp_path, "--seed", "3", "--hang-timeout", "4", fault="hang")
    assert weights(shown) == wanted
    assert "worker 1 has made no progress for " in shown
    assert shown.count("has made no progress") == 1  # and the other one only waits for it
    assert "resumed at step 61 " in shown
    assert "on_train_batch_end" in (tmp_path / "logs" / "worker-1.log").read_text()
    assert "on_train_batch_end" not in shown


def test_a_worker_that_hangs_in_a_validation_is_replaced(tmp_path: Path, wanted: str) -> None:
    shown = run(tmp_path, "--seed", "3", "--hang-timeout", "4", fault="validation")
    assert weights(shown) == wanted
    assert (
        shown.count("has made no progress") == 1 and "worker 1 has made no progress for " in shown
    )
    assert "resumed at step 80 " in shown
    assert "on_test_batch_end" in (tmp_path / "logs" / "worker-1.log").read_text()


def test_a_worker_that_hangs_in_a_loop_is_replaced_and_one_that_is_busy_is_not(
    tmp_path: Path,
) -> None:
    script = str(SCRIPTS / "hang_loop.py")
    shown = run(tmp_path, "--seed", "3", "--hang-timeout", "5", script=script)
    assert (
        "worker 1 has made no progress for " in shown and shown.count("has made no progress") == 1
    ), shown
    assert re.findall(r"resumed at step (\d+) ", shown) == ["16", "21"], shown
    (line,) = [line for line in shown.splitlines() if line.startswith("WEIGHTS")]
    assert line.endswith(" 40 round 2")
    assert "hang_loop.py" in (tmp_path / "logs" / "worker-1.log").read_text()


def test_a_survivor_that_is_stuck_in_its_own_python_has_its_last_step_kept(tmp_path: Path) -> None:
    script = str(SCRIPTS / "stuck.py")
    options = ("--seed", "3", "--snapshot-every", "0")
    wanted = run(tmp_path / "undisturbed", *options, script=script)
    shown = run(tmp_path / "stuck", *options, script=script, fault="stuck")
    # After the step whose callbacks were called; before the one that was in its forward pass.
    assert re.findall(r"resumed at step (\d+) ", shown) == ["10", "25", "38"], shown
    assert weights(shown) == weights(wanted)


def test_the_only_worker_is_stuck_and_keeps_its_step(tmp_path: Path) -> None:
    script = str(SCRIPTS / "stuck.py")
    options = ("--seed", "3", "--snapshot-every", "0", "--hang-timeout", "3", "--deterministic")
    shown = run(tmp_path, *options, script=script, workers=1, fault="stuck")
    assert "worker 0 has made no progress for " in shown
    assert "resumed at step 10 with 1 worker" in shown
    assert "\ndeterministic\n" in shown


def test_the_only_worker_goes_on_from_its_last_snapshot(tmp_path: Path) -> None:
    options = ("--seed", "3", "--snapshot-every", "10")
    alone = run(tmp_path / "undisturbed", *options, workers=1)
    shown = run(tmp_path / "killed", *options, fault="kill", workers=1)
    assert weights(shown) == weights(alone)
    assert "resumed at step 60 with 1 worker" in shown
    losses = [line.partition("loss: ")[2] for line in alone.splitlines() if "loss: " in line]
    assert [
        line.partition("loss: ")[2] for line in shown.splitlines() if "loss: " in line
    ] == losses


def test_preempted_and_started_again(tmp_path: Path, wanted: str) -> None:
    shown = run(tmp_path, "--seed", "3", fault="term", exit_code=75)
    assert "preempted by SIGTERM" in shown
    assert (tmp_path / "checkpoints" / "checkpoint").exists()
    again = run(tmp_path)  # the seed is that of the first job
    assert "continuing from the last checkpoint" in again
    assert "Epoch 1/3" not in again
    assert weights(again) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_the_launcher_is_killed_and_the_same_command_finds_the_memory(
    tmp_path: Path, workers: int
) -> None:
    """No checkpoint was due: what the workers had come to was in the machine's memory alone."""
    options = ("--checkpoint-every", "1h", "--seed", "3")
    alone = run(tmp_path / "undisturbed", *options, workers=workers)
    folder = tmp_path / "run"
    run(folder, *options, fault="launcher", workers=workers, exit_code=-signal.SIGKILL)
    again = run(folder, *options, workers=workers)  # at once
    found = re.search(r"continuing from the last checkpoint here, of step (\d+);", again)
    assert found and 61 <= int(found.group(1)) < 120, again
    assert "done again" not in again and "Epoch 1/3" not in again
    assert weights(again) == weights(alone)
    assert not list(folder.glob("checkpoints/.agent-*"))


def test_a_job_that_failed_goes_on_from_its_checkpoint(tmp_path: Path, wanted: str) -> None:
    options = ("--checkpoint-every", "5", "--max-restarts", "0")
    run(tmp_path, "--seed", "3", *options, fault="kill", exit_code=137)
    kept = [path.name for path in tmp_path.glob("checkpoints/ckpt-*")]
    assert 1 <= len(kept) <= 6  # SIGKILL may come between a new one and the end of the oldest
    again = run(tmp_path, *options)
    assert "continuing from" in again  # at whichever step the disk had come to
    assert weights(again) == wanted
    # It has finished: the next one begins anew, and so does one that is told to.
    third = run(tmp_path, "--seed", "3", *options)
    assert "continuing from" not in third and "Epoch 1/3" in third
    assert weights(third) == wanted


def test_a_fresh_start_puts_checkpoints_aside(tmp_path: Path, wanted: str) -> None:
    run(tmp_path, "--seed", "3", "--checkpoint-every", "epoch", fault="term", exit_code=75)
    # The model is another one by now, which is the script's own failure and says what to do.
    shown = run(tmp_path, "--seed", "3", fault="changed", exit_code=1)
    failure = view_of(tmp_path).to_json(time.time())["failure"]
    words = " ".join(shown.replace("│", " ").split())
    assert (
        "TFRUN-507: the variable 'sequential/dense/kernel' has the shape (8, 24), but had" in words
    )
    assert "--fresh begins anew" in words and "restart" not in words
    assert "TFRUN-507" in failure["message"] and "(8, 16)" in failure["message"]
    shown = run(tmp_path, "--seed", "3", "--fresh")
    assert "continuing from" not in shown
    assert weights(shown) == wanted
    assert len(list(tmp_path.glob("checkpoints-*"))) == 1


@pytest.fixture
def full_memory(tmp_path: Path):
    """A file system without room."""
    if os.geteuid():
        pytest.skip("NOT TESTED: mounting a small file system takes root")
    path = tmp_path / "memory"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", path], check=True)
    try:
        with contextlib.suppress(OSError), (path / "filled").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_without_room_for_snapshots_training_goes_on_and_says_so_once(
    tmp_path: Path, wanted: str, full_memory: Path
) -> None:
    shown = run(tmp_path / "run", "--seed", "3", "--snapshot-every", "10", state=full_memory)
    assert weights(shown) == wanted
    assert shown.count("TFRUN-702") == 1
    assert "no snapshot is kept in the machine's memory: No space left on device" in shown
    assert not list(full_memory.glob("*.safetensors*"))


READ = """
import sys
import tensorflow as tf
import keras
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
)
model.compile(optimizer="adam", loss="mse")
model.optimizer.build(model.trainable_variables)
saved = tf.train.latest_checkpoint(sys.argv[1])
status = tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(saved)
status.assert_existing_objects_matched()
print("STEPS", int(model.optimizer.iterations.numpy()))
"""


def test_plain_tensorflow_reads_a_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, "--checkpoint-every", "epoch")
    names = json.loads((tmp_path / "job.json").read_text())
    done = subprocess.run(
        [sys.executable, "-c", READ, names["checkpoint_dir"]],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "STEPS 120" in done.stdout, done.stderr


STOPPED = """
import os, pathlib, signal
once = pathlib.Path("once")
if not once.exists():
    once.touch()
    os.kill(os.getpid(), signal.SIGSTOP)
print("went on")
"""


def test_one_that_a_signal_has_stopped_is_replaced_without_a_strategy_too(jobs: Jobs) -> None:
    jobs.script(STOPPED)
    done = jobs.run("-n", "1", "--hang-timeout", "2", "train.py")
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert "worker 0 was stopped (SIGSTOP) " in done.stderr


def test_checkpoints_of_which_none_can_be_read_are_told(tmp_path: Path) -> None:
    options = ("--checkpoint-every", "5", "--max-restarts", "0")
    assert "continuing from" not in run(tmp_path, *options, fault="kill", exit_code=137)
    damaged = list(tmp_path.glob("checkpoints/ckpt-*/manifest.json"))
    assert damaged
    for manifest in damaged:
        manifest.write_bytes(b"")
    shown = run(tmp_path, *options, "--strict", exit_code=3)
    assert "TFRUN-703: ended by --strict" in shown
    shown = run(tmp_path, *options)
    assert shown.count("WARNING TFRUN-703: ") == 2 and "Epoch 1/3" in shown
