"""A job with parameter servers is preempted in the midst of `fit`; the same command goes on."""

from __future__ import annotations

import json
import re
import signal

import pytest

from conftest import JOB_SECONDS, Jobs

SCRIPT = """
import json
import keras, numpy as np, tensorflow as tf, tfrun
x = np.random.default_rng(0).random((960, 8), np.float32)
y = x.sum(1)
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
samples, said = [], []

class Counts(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not said:
            said.append(int(model.optimizer.iterations.numpy()))
            print("begun", said[0], flush=True)

    def on_epoch_end(self, epoch, logs=None):
        samples.append(float(model._loss_tracker.count.numpy()))

data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
model.fit(data, epochs=20, verbose=0, validation_data=(x, y), callbacks=[Counts()])
print(json.dumps([int(model.optimizer.iterations.numpy()), sorted(set(samples))]))
"""


@pytest.mark.thorough
def test_a_preempted_fit_is_saved_and_goes_on(jobs: Jobs) -> None:
    """SIGTERM to the launcher, within an epoch of a pipeline. The evaluator sees the end."""
    jobs.script(SCRIPT)
    command = ("-n", 2, "--ps", 1, "--evaluator", "--run-dir", "run", "train.py")
    job = jobs.start(*command)
    assert job.stdout is not None
    first = job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    _, told = job.communicate(timeout=JOB_SECONDS)
    assert job.returncode == 75, told
    (saved,) = re.findall(r"step ([\d,]+) is saved", told)
    again = jobs.run(*command)
    assert again.returncode == 0, again.stderr
    begun, end = again.stdout.splitlines()
    assert first.startswith("begun ") and json.loads(end) == [20 * 60, [960.0]]
    assert int(begun.split()[1]) > int(saved.replace(",", "")) > 0
    assert "evaluator 0: step 1,200: loss " in again.stderr
