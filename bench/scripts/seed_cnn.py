"""Milliseconds a step of `fit` with the seed CNN, 64 samples a worker, by epoch."""

import sys
import time

import numpy as np
import pinned
import tensorflow as tf

if sys.argv[1] == "legacy":
    import tf_keras as keras
else:
    import keras

STEPS, EPOCHS, PER_WORKER = 60, 6, 64
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
random = np.random.default_rng(0)
x = random.random((6400, 28, 28, 1), np.float32)
y = random.integers(0, 10, 6400)
batch = PER_WORKER * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(6400).repeat().batch(batch)


class Clock(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.times = []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.times.append((time.perf_counter() - self.start) / STEPS * 1000)


clock = Clock()
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[clock])
pinned.write(clock.times[1:])
