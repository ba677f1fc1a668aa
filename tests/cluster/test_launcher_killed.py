"""The launcher is killed: the same command, started again, goes on with what memory held."""

from __future__ import annotations

import re
import signal

import pytest

from conftest import Jobs, wait_until

pytestmark = pytest.mark.net

# Slow enough to be killed in the middle; says how far it has come, and what it has made.
FIT = """
import pathlib, time
import keras, numpy as np, tfrun
class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pathlib.Path(f"epoch-{epoch}").touch()
        time.sleep(0.3)
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.random.RandomState(0).rand(640, 8).astype("float32")
data = tfrun.Dataset.from_arrays((x, x.sum(1)), batch_size=32)
model.fit(data, epochs=8, verbose=0, callbacks=[Slow()])
print("STEPS", int(model.optimizer.iterations.numpy()), flush=True)
"""
LOOP = """
import pathlib, time
import keras, numpy as np, tensorflow as tf, tfrun
strategy = tfrun.strategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
x = np.random.RandomState(0).rand(640, 8).astype("float32")
data = tfrun.Dataset.from_arrays((x, x.sum(1)), batch_size=32)
state = tfrun.TrainState(model=model, optimizer=optimizer)
@tf.function
def step(batch):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True)[:, 0] - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    strategy.run(on_replica, args=batch)
for batch in state.steps(data, epochs=8):
    step(batch)
    time.sleep(0.02)
    if state.step % 20 == 0:
        pathlib.Path(f"epoch-{state.step // 20 - 1}").touch()
print("STEPS", int(optimizer.iterations.numpy()), flush=True)
"""


@pytest.mark.parametrize(
    ("script", "options"),
    [(FIT, ("-n", 2, "--ps", 1)), (LOOP, ("-n", 1)), (LOOP, ("-n", 2))],
    ids=["servers", "loop", "loop on two"],
)
def test_no_step_is_lost(jobs: Jobs, script: str, options: tuple[object, ...]) -> None:
    jobs.script(script)
    options = (*options, "--checkpoint-every", "1h", "--run-dir", "run", "train.py")
    process = jobs.start(*options)
    wait_until((jobs.directory / "epoch-2").exists, "three epochs are trained", 60)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    again = jobs.run(*options)
    assert again.returncode == 0, again.stderr
    found = re.search(r"continuing from the last checkpoint here, of step (\d+);", again.stderr)
    assert found and 60 <= int(found.group(1)) < 160, again.stderr
    assert "done again" not in again.stderr
    assert "STEPS 160" in again.stdout
    assert not list((jobs.directory / "run" / "checkpoints").glob(".agent-*"))
