"""Trainings whose weights count how often each sample was used, while workers kill themselves.

The model has one weight for each sample, which each use of it lowers by 1 / batch.
KILLS: "round:rank:training:step", several with spaces between; the worker dies within a few
milliseconds after that step of that training began. EXIT: "training:step" at which the job ends.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE = tfrun.world()
KILLS = [tuple(map(int, kill.split(":"))) for kill in os.environ.get("KILLS", "").split()]
EXIT = tuple(map(int, os.environ.get("EXIT", "-1:-1").split(":")))
SAMPLES, BATCH = 100, 14  # 8 steps; the last one is short, and uneven on two and three workers
ids = np.arange(SAMPLES, dtype="int32")


def step_begins(training: int, step: int) -> None:
    if (training, step) == EXIT and HERE.round == 0:
        time.sleep(0.5)  # a checkpoint is on its way to the disk
        os._exit(3)
    if (HERE.round, HERE.rank, training, step) in KILLS:

        def kill() -> None:
            time.sleep(random.Random(time.time_ns()).random() * 0.004)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=kill).start()


class Steps(keras.callbacks.Callback):
    def __init__(self, training: int, steps_an_epoch: int = 8) -> None:
        super().__init__()
        self.training, self.steps, self.epoch = training, steps_an_epoch, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        step_begins(self.training, self.epoch * self.steps + batch)


class Predicted(keras.losses.Loss):
    """Lowers a sample's weight by 1 / batch each time that it is used."""

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


strategy = tfrun.strategy()
with strategy.scope():
    inputs = keras.Input((SAMPLES,))
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Model(inputs, dense(inputs))
    model.compile(keras.optimizers.SGD(1.0), Predicted(), steps_per_execution=3)
rows = np.eye(SAMPLES, dtype="float32")[ids]

# 0: plain arrays, three steps an execution, which do not divide the epoch; with validation.
model.fit(
    rows,
    ids,
    batch_size=BATCH,
    epochs=3,
    verbose=0,
    callbacks=[Steps(0)],
    validation_data=(rows, ids),
)
model.evaluate(rows, ids, verbose=0)
# 1: a tfrun.Dataset, which the two trainings after this one go on in.
with strategy.scope():
    model.compile(model.optimizer, Predicted())
train = tfrun.Dataset.from_arrays((rows, ids), batch_size=BATCH, shuffle=True, seed=3)
model.fit(train, epochs=3, verbose=0, callbacks=[Steps(1)], validation_data=(rows, ids))
# 2: a part of an epoch of another dataset, and its rest.
other = tfrun.Dataset.from_arrays((rows, ids), batch_size=BATCH, shuffle=True, seed=4)
model.fit(other, epochs=2, steps_per_epoch=4, verbose=0, callbacks=[Steps(2, 4)])
# 3: a custom loop.
state = tfrun.TrainState(model=model, optimizer=model.optimizer)


@tf.function
def train_step(batch):
    def on_replica(x, _):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True)) / BATCH
        model.optimizer.apply_gradients(
            zip(
                tape.gradient(loss, model.trainable_variables),
                model.trainable_variables,
                strict=True,
            )
        )

    strategy.run(on_replica, args=batch)


for batch in state.steps(train, epochs=2):
    step_begins(3, state.step)
    train_step(batch)
state.close()

counts = np.round(-model.get_weights()[0][:, 0] * BATCH, 3)
if HERE.rank == 0:
    Path(sys.argv[1]).write_text(json.dumps(counts.tolist()))
print("round", HERE.round, "counts", np.unique(counts).tolist(), flush=True)
