"""Trains by a loop or by `fit` what nobody has been told of; worker 1 dies once, in a step.

not_given.py loop|fit FILE
"""

import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

HOW, DIED = sys.argv[1], Path(sys.argv[2])
strategy = tfrun.strategy()
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    other = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(1, name="unknown")])
    optimizers = keras.optimizers.SGD(0.01), keras.optimizers.SGD(0.01)
    seen, scale = keras.metrics.Mean("seen"), tf.Variable(1.0)
    for one, optimizer in zip((model, other), optimizers, strict=True):
        optimizer.build(one.trainable_variables)
x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
y = x[:, :1]

with strategy.scope():
    earlier = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    earlier.compile("adam", "mse", metrics=["mae"])
earlier.fit(x, y, batch_size=8, verbose=0)
earlier.evaluate(x, y, verbose=0)  # which a new process does again; its metrics are not the step's


counts, late = [], []
table = tf.lookup.experimental.MutableHashTable("int64", "float32", 0.0)


def on_replica(x, y):
    if not counts:
        counts.append(tf.Variable(0.0))  # in the first step
    for count in (*counts, *late):
        count.assign_add(1.0)
    x = x + tf.random.normal(tf.shape(x))
    table.insert(tf.constant([1], "int64"), tf.constant([1.0]))
    for one, optimizer in zip((model, other), optimizers, strict=True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((one(x, training=True) - y) ** 2) / 8 * scale
        gradients = tape.gradient(loss, one.trainable_variables)
        optimizer.apply_gradients(zip(gradients, one.trainable_variables, strict=True))
    seen.update_state(loss)
    return loss


def dies(step):
    if step == 10 and tfrun.world().rank == 1 and not DIED.exists():
        DIED.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dies(keras.callbacks.Callback):
    step = 0

    def on_train_batch_begin(self, batch, logs=None):
        dies(self.step)
        self.step += 1

    def on_epoch_begin(self, epoch, logs=None):
        scale.assign(scale * 0.9)


class Model(keras.Model):
    def call(self, x, training=False):
        return model(x, training=training)

    def train_step(self, data):
        return {"loss": on_replica(*data)}


@tf.function
def step(batch):
    strategy.run(on_replica, batch)


if HOW == "fit":
    with strategy.scope():
        trained = Model()
        trained.known = model
        trained.compile(optimizers[0], "mse")
    trained.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=[Dies()])
else:
    state = tfrun.TrainState(model=model, optimizer=optimizers[0])
    with strategy.scope():
        late.append(tf.Variable(0.0))  # after the TrainState
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    least, rates = 1.0, []
    for epoch in range(state.epoch, 5):
        rates.append(0.9**epoch)
        scale.assign(0.9**epoch)
        for batch in state.steps(data, epochs=epoch + 1):
            dies(state.step)
            step(batch)
            least = min(least, 0.9**state.step)
