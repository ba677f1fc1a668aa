"""Milliseconds a step of `fit` by epoch: a model of two dense layers ("tiny"), or the small CNN."""

import sys

import clock
import cnn
import keras
import numpy as np
import pinned
import tensorflow as tf

STEPS, EPOCHS = {"tiny": 300, "cnn": 60}[sys.argv[1]], 6


def tiny() -> keras.Model:
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tiny() if sys.argv[1] == "tiny" else cnn.compiled(keras)
x, y = cnn.samples()
if sys.argv[1] == "tiny":
    x = np.ascontiguousarray(x.reshape(len(x), -1)[:, :64])
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().batch(batch)

timed = clock.of(keras, STEPS)
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[timed])
pinned.write(timed.times[1:])
