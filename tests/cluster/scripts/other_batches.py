"""A training that is cut off in an epoch and goes on with another batch, or other data.

The model has one weight for each sample, which each use of it lowers by 1, in a batch of any size.
HOW: what trains. BATCH, SAMPLES: "first:then", of the run that is cut off and of the next one.
ROLLED: the next run has the samples in another order.
CUT: "exit" ends the job after five steps of the second epoch, "kill" kills its last worker there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE = tfrun.world()
OUT, HOW = Path(sys.argv[1]), os.environ["HOW"]
MARK = OUT / "cut-off"
AGAIN = MARK.exists() or HERE.round > 0


def given(name: str) -> int:
    return int(os.environ[name].split(":")[AGAIN])


MOST = 100
BATCH, SAMPLES = given("BATCH"), given("SAMPLES")
rows = np.eye(MOST, dtype="float32")[:SAMPLES]
ids = np.arange(SAMPLES, dtype="int32")
if AGAIN and "ROLLED" in os.environ:  # the same samples in another order
    rows, ids = np.roll(rows, 1, axis=0), np.roll(ids, 1)


def step_ends(epoch: int, steps: int) -> None:
    """So many steps of the epoch are done."""
    if AGAIN or (epoch, steps) != (1, 5):
        return
    if os.environ["CUT"] == "exit" and HERE.is_chief:
        # The checkpoint of the fourth step is on its way to the disk.
        until = time.monotonic() + 30
        while time.monotonic() < until and not saved():
            time.sleep(0.05)
        MARK.touch()
        os._exit(3)
    if os.environ["CUT"] == "kill" and HERE.rank == HERE.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def saved() -> bool:
    steps_of_an_epoch = -(-SAMPLES // BATCH)
    return Path("run/checkpoints", f"ckpt-{steps_of_an_epoch + 4}", "manifest.json").exists()


class Steps(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.steps = epoch, 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        step_ends(self.epoch, self.steps)


class Sum(keras.losses.Loss):
    """Lowers a sample's weight by 1 each time that it is used."""

    def __init__(self) -> None:
        super().__init__(reduction="sum")

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


strategy = tfrun.strategy()
with strategy.scope():
    inputs = keras.Input((MOST,))
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Model(inputs, dense(inputs))
    model.compile(keras.optimizers.SGD(1.0), Sum())

if HOW == "arrays":
    model.fit(rows, ids, batch_size=BATCH, epochs=2, verbose=2, callbacks=[Steps()])
elif HOW == "dataset":
    data = tfrun.Dataset.from_arrays((rows, ids), batch_size=BATCH, shuffle=True, seed=3)
    data = data.map(lambda x, y: (x, y))
    model.fit(data, epochs=2, verbose=2, callbacks=[Steps()])
elif HOW == "pipeline":
    data = tf.data.Dataset.from_tensor_slices((rows, ids)).shuffle(MOST, seed=3).batch(BATCH)
    model.fit(data, epochs=2, verbose=2, callbacks=[Steps()])
else:
    data = tfrun.Dataset.from_arrays((rows, ids), batch_size=BATCH, shuffle=True, seed=3)
    state = tfrun.TrainState(model=model, optimizer=model.optimizer)

    @tf.function
    def train_step(batch):
        def on_replica(x, _):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x, training=True))
            variables = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, variables), variables)

        strategy.run(on_replica, args=batch)

    for batch in state.steps(data, epochs=2):
        epoch, done = state.epoch, state.step_in_epoch
        train_step(batch)
        if done + 1 > 5:  # the step before is known to be done
            step_ends(epoch, done)
    state.close()

if HERE.is_chief:
    counts = np.round(-model.get_weights()[0][:, 0], 3).tolist()
    (OUT / "counts.json").write_text(json.dumps(counts))
