"""A worker that is late, then one that stops; and what a step costs in calls."""

import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np

import tfrun
from tfrun.engine import host_collective

RANK, ROUND = tfrun.world().rank, tfrun.world().round
x = np.random.default_rng(0).normal(size=(96, 8)).astype("float32")


class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if RANK == 1 and ROUND == 0 and batch == 2:
            time.sleep(2.5)  # its peer asks twice whether it lives
        if RANK == 1 and ROUND == 0 and batch == 5:
            os.kill(os.getpid(), signal.SIGSTOP)


OURS = str(Path(tfrun.__file__).parent)


class Counter(keras.callbacks.Callback):
    """What each step of the last epoch adds to the counts, also of calls of tfrun's functions."""

    def on_epoch_begin(self, epoch, logs=None):
        self.seen, self.calls = [], 0
        sys.setprofile(self.count if epoch == 2 else None)

    def count(self, frame, event, argument):
        self.calls += event == "call" and frame.f_code.co_filename.startswith(OURS)

    def on_train_batch_end(self, batch, logs=None):
        counts = host_collective.current().counts
        self.seen.append((counts.collectives, counts.sums, counts.copied_bytes, self.calls))

    def on_train_end(self, logs=None):
        sys.setprofile(None)


counter = Counter()
with tfrun.strategy().scope():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(64), keras.layers.BatchNormalization()]
        + [keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", metrics=["mae"])
model.fit(x, x[:, :1], batch_size=12, epochs=3, verbose=0, callbacks=[Fault(), counter])
steps = np.diff(np.array(counter.seen), axis=0)
if RANK == 0:
    # Some steps also report how far they are.
    print("ROUND", ROUND, "COUNTS", [*steps.max(axis=0).tolist()[:3], int(np.median(steps[:, 3]))])
