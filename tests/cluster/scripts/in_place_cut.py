"""A training in which one worker dies within its forward pass, while the other is within its own.

in_place_cut.py VICTIM SUMS: the rank that dies, -1 for nobody; whether the forward pass sums over
the workers, too. Each layer of interest counts how often it has been computed; the other worker
waits in the first one until it has heard of the death.
"""

import hashlib
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.engine import cut_short

STEP, SECONDS = 5, 60
victim, sums, began = int(sys.argv[1]), sys.argv[2] == "True", tfrun.world()
computed = {"first": 0, "last": 0}
keras.utils.set_random_seed(1)
random = np.random.default_rng(0)


@keras.saving.register_keras_serializable("tests")
class Computed(keras.layers.Layer):
    def call(self, x):
        nothing = tf.numpy_function(self.tell, [tf.reduce_sum(x)], tf.float32)
        return x + tf.stop_gradient(tf.ensure_shape(nothing, []))

    def compute_output_shape(self, shape):
        return shape

    def tell(self, _):
        computed[self.name] += 1
        if self.name == "first" and computed["first"] == STEP and began.round == 0 <= victim:
            if began.rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            until = time.monotonic() + SECONDS
            while not cut_short._is_shut:
                assert time.monotonic() < until, "nobody has said that the other one is dead"
                time.sleep(0.005)
        return np.float32(0)


layers = keras.layers
model = keras.Sequential(
    [
        keras.Input((8,)),
        layers.Dense(16, activation="relu"),
        Computed(name="first"),
        layers.Dropout(0.5),
        layers.Dense(16, activation="relu"),
        Computed(name="last"),
        layers.BatchNormalization(synchronized=sums),
        layers.Dense(3),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
x = random.normal(size=(96, 8)).astype("float32")
y = random.integers(0, 3, size=(96,))

in_step = []


class Looks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        in_step.append(dict(computed))


history = model.fit(x, y, batch_size=24, epochs=5, verbose=0, callbacks=[Looks()])
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", hashlib.sha256(weights).hexdigest(), sorted(history.history.items()), flush=True)
made = [in_step[STEP - 1][name] - in_step[STEP - 2][name] for name in computed]
print("MADE", *made, flush=True)
