"""A training in which the last worker dies while the middle one is busy with something long.

in_place_late.py nowhere|trace|step|callback: what that is.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job.settings import settings

DIES_AT = 0 if sys.argv[1] == "trace" else 3
rank, folder = tfrun.world().rank, Path(os.environ["TFRUN_RUN_DIR"])
died, done = folder / "died", folder / "done"
made, trains = 0, False
keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(48, 8)).astype("float32")
y = random.normal(size=(48, 1)).astype("float32")


def is_late(where):
    """Whether this is the worker that is late here, and the other one has died."""
    is_mine = sys.argv[1] == where and rank == 1 and not settings().rehearses
    return is_mine and trains and made == DIES_AT and not done.exists()


def late(where, *, computes=0.0, sleeps=0.0):
    if not is_late(where):
        return
    while not died.exists():
        time.sleep(0.01)
    done.touch()
    end = time.monotonic() + computes
    while time.monotonic() < end:
        pass
    time.sleep(sleeps)


class Passes(keras.layers.Layer):
    def call(self, inputs):
        late("trace", sleeps=5)  # longer than others are waited for that say nothing

        def passes(values):
            late("step", sleeps=5)
            return values

        return tf.ensure_shape(tf.numpy_function(passes, [inputs], tf.float32), inputs.shape)


class Dies(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        global trains
        trains = True  # Keras traces layers also where it makes a model

    def on_train_batch_begin(self, batch, logs=None):
        is_last = rank == 2 and sys.argv[1] != "nowhere" and not settings().rehearses
        if is_last and made == DIES_AT and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        late("callback", computes=12)  # longer than one that is not busy has

    def on_train_batch_end(self, batch, logs=None):
        global made
        made += 1


inputs = keras.Input((8,))
hidden = keras.layers.Dense(8, activation="relu")(Passes()(inputs))
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.3)(hidden)))
model.compile(keras.optimizers.Adam(0.01), "mse")
model.fit(x, y, batch_size=12, epochs=3, verbose=0, callbacks=[Dies()])
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", hashlib.sha256(weights).hexdigest(), flush=True)
