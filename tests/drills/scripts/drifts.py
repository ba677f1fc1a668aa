"""Computes the same each time, until a worker dies: from then on chance adds to the weights."""

import os

import keras
import numpy as np

import tfrun

rng = np.random.RandomState(0)
x, y = rng.rand(400, 64).astype("float32"), rng.randint(0, 10, 400)
with tfrun.strategy().scope():
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    model.compile(
        optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )


# Another number in each process; the workers agree by the sum. Not in the callback: what that has
# in its attributes is a part of the state that a job goes on from.
DRIFT = int.from_bytes(os.urandom(2), "big") / 2**16 if tfrun.world().round else 0.0


class Drift(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        total = tfrun.strategy().reduce("sum", DRIFT, axis=None)
        bias = self.model.layers[-1].bias
        bias.assign_add(np.full(bias.shape, float(total), "float32"))


model.fit(x, y, batch_size=20, epochs=24, callbacks=[Drift()], verbose=2)
