"""Trains small models while one worker's steps are slow, and prints their bits and the moves.

SLOW: one worker's replicas take longer, another's with each model; without it all are alike.
DIES_AT: the step of its first training after which the last worker kills itself.
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
from tfrun.job import holding

here = tfrun.world()
SLOW = os.environ.get("SLOW")
DIES_AT = int(os.environ.get("DIES_AT", "0"))
STEPS, BATCH = 60, 10  # of an epoch: two of them have a whole window of --balance
slow = 0


def nap():
    if SLOW and here.rank == slow:
        time.sleep(0.05)
    return np.float32(0)


class Dies(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        Dies.steps += 1
        if here.round == 0 and here.rank == here.size - 1 and Dies.steps == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)


class Reads(keras.callbacks.Callback):
    """Reads the logs of each step, also of that after which replicas move."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        logs["seen"] = float(np.sum(self.seen, dtype="float64"))


class Drag(keras.layers.Layer):
    def call(self, x):
        with tf.control_dependencies([tf.numpy_function(nap, [], tf.float32)]):
            return tf.identity(x)


def model():
    net = keras.Sequential(
        [
            keras.Input((6,)),
            Drag(),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile("adam", loss, metrics=["accuracy"])
    return net


rng = np.random.default_rng(0)
x = rng.normal(size=(STEPS * BATCH - 3, 6)).astype("float32")
y = rng.integers(0, 3, len(x))


def arrays():
    net = model()
    options = {"batch_size": BATCH, "epochs": 2, "validation_data": (x[:33], y[:33])}
    return net, net.fit(x, y, verbose=0, callbacks=[Dies()], **options)


def pipeline():
    net, data = model(), tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100, seed=3)
    data = data.map(lambda x, y: (2 * x, y)).batch(BATCH).prefetch(3)
    options = {"epochs": 2, "validation_data": data.take(2)}
    return net, net.fit(data, verbose=0, callbacks=[Dies(), Reads()], **options)


def dataset():
    net = model()
    net.steps_per_execution = 4
    data = tfrun.Dataset.from_arrays((x, y), batch_size=BATCH, seed=4).map(lambda x, y: (2 * x, y))
    return net, net.fit(data, epochs=2, verbose=0)


def generator():
    net = model()

    def batches():
        while True:
            for i in range(0, len(x), BATCH):
                yield x[i : i + BATCH], y[i : i + BATCH]

    return net, net.fit(batches(), steps_per_epoch=STEPS, epochs=2, verbose=0)


for name in sys.argv[1:]:
    keras.utils.set_random_seed(1)
    before = holding.moves
    net, history = globals()[name]()
    bits = b"".join(np.ascontiguousarray(w).tobytes() for w in net.get_weights())
    numbers = {k: [float(value).hex() for value in v] for k, v in history.history.items()}
    if here.is_chief:
        print("BITS", name, hashlib.sha256(bits).hexdigest()[:16], numbers, flush=True)
        print("MOVED", name, holding.moves - before, list(map(len, holding.blocks())), flush=True)
    slow = (slow + 1) % here.size
