"""A job is started again otherwise than it was: with fewer epochs, beside one that still runs."""

from __future__ import annotations

import re
import signal

import pytest

from conftest import Jobs, wait_until

pytestmark = pytest.mark.net

SCRIPT = """
import os, pathlib, time
import keras, numpy as np, tfrun
class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pathlib.Path(f"epoch-{epoch}").touch()
        time.sleep(float(os.environ["SLEEP"]))
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.random.RandomState(0).rand(256, 8).astype("float32")
kwargs = {"epochs": int(os.environ["EPOCHS"]), "callbacks": [Slow()], "verbose": 0}
history = model.fit(x, x.sum(1), batch_size=16, **kwargs)
loss = float(model.evaluate(x, x.sum(1), verbose=0))
print("FOUND", int(model.optimizer.iterations.numpy()), loss, flush=True)
"""


@pytest.mark.parametrize("options", [("-n", 1), ("-n", 2), ("-n", 2, "--ps", 1)])
def test_fewer_epochs_than_the_state_has_behind_it(jobs: Jobs, options: tuple[object, ...]) -> None:
    """The weights are those of the state, and not those that the script began with."""
    jobs.script(SCRIPT)
    command = (*options, "--run-dir", "run", "--seed", "1", "train.py")
    process = jobs.start(*command, env={"EPOCHS": "8", "SLEEP": "0.5"})
    wait_until((jobs.directory / "epoch-4").exists, "five epochs are trained", 60)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    saved = re.search(r"step (\d+) is saved", said)
    assert process.returncode == 75 and saved, said
    again = jobs.run(*command, env={"EPOCHS": "2", "SLEEP": "0"})
    assert again.returncode == 0, again.stderr
    assert "fit is to end after 2: the weights are restored" in again.stderr, again.stderr
    (found,) = re.findall(r"FOUND (\d+) (\S+)", again.stdout)
    assert found[0] == saved.group(1)
    assert float(found[1]) < 0.6  # it begins with more than ten times as much


def test_checkpoints_that_a_running_job_uses(jobs: Jobs) -> None:
    jobs.script(SCRIPT)
    options = ("--checkpoint-dir", "kept", "train.py")
    process = jobs.start("--run-dir", "one", *options, env={"EPOCHS": "1", "SLEEP": "100"})
    try:
        wait_until((jobs.directory / "epoch-0").exists, "it trains", 60)
        kept = sorted(path.name for path in (jobs.directory / "kept").iterdir())
        for more in ((), ("--fresh",)):
            other = jobs.run("--run-dir", "two", *more, *options, env={"EPOCHS": "1", "SLEEP": "0"})
            assert other.returncode == 2 and "TFRUN-110" in other.stderr, other.stderr
            assert "checkpoint directory" in other.stderr
        assert sorted(path.name for path in (jobs.directory / "kept").iterdir()) == kept
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
