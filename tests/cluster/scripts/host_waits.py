"""A worker that is late, then one that stops; and what a step costs in calls.

With QUIET the last alone.
"""

import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from restated import restate

import tfrun
from tfrun.engine import host_collective

RANK, ROUND = tfrun.world().rank, tfrun.world().round
QUIET = "QUIET" in os.environ
x = np.random.default_rng(0).normal(size=(96, 8)).astype("float32")


class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if RANK == 1 and ROUND == 0 and batch == 2:
            time.sleep(2.5)  # its peer asks twice whether it lives
        if RANK == 1 and ROUND == 0 and batch == 5:
            os.kill(os.getpid(), signal.SIGSTOP)


OURS = str(Path(tfrun.__file__).parent)
# Who waits for others in the thread of `fit` calls as often as it looks.
WAITS = (f"{OURS}/collective/", f"{OURS}/engine/host_c")


class Counter(keras.callbacks.Callback):
    """What each step of the last epoch adds to the counts, also of calls of tfrun's functions."""

    def on_epoch_begin(self, epoch, logs=None):
        self.seen, self.calls = [], 0
        sys.setprofile(self.count if epoch == 2 else None)

    def count(self, frame, event, argument):
        path = frame.f_code.co_filename
        self.calls += event == "call" and path.startswith(OURS) and not path.startswith(WAITS)

    def on_train_batch_end(self, batch, logs=None):
        counts = host_collective.current().counts
        self.seen.append((counts.collectives, counts.sums, counts.copied_bytes, self.calls))

    def on_train_end(self, logs=None):
        sys.setprofile(None)


def made():
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(64), keras.layers.BatchNormalization()]
            + [keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse", metrics=["mae"])
    return model


def endless(switch):
    """What each step counts, and the weights, of an endless tf.data pipeline.

    Each worker has 8 samples: by another number TensorFlow divides in another way once it is known.
    """
    restate(own_rows=switch)
    model, counter = made(), Counter()
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(96).repeat().batch(16)
    model.fit(data, epochs=1, steps_per_epoch=20, verbose=0, callbacks=[counter])
    collectives = np.diff(np.array(counter.seen)[:, 0]).max()
    return int(collectives), [variable.numpy().tobytes() for variable in model.variables]


strategy, counter = tfrun.strategy(), Counter()
model = made()
model.fit(
    x,
    x[:, :1],
    batch_size=12,
    epochs=3,
    verbose=0,
    callbacks=[*([] if QUIET else [Fault()]), counter],
)
steps = np.diff(np.array(counter.seen), axis=0)
if RANK == 0:
    # Some steps also report how far they are.
    print("ROUND", ROUND, "COUNTS", [*steps.max(axis=0).tolist()[:3], int(np.median(steps[:, 3]))])
if QUIET:
    sys.exit()
(own, weights), (all_rows, wanted) = endless(True), endless(False)
if RANK == 0:
    print("ENDLESS", all_rows - own, "less, same bits", weights == wanted)
