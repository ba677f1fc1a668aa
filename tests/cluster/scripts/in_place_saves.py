"""Trains, saves, loads, and trains again; a worker dies somewhere. Prints what is in the files.

python in_place_saves.py WHERE RANK: "first" or "second" (of the trainings), or "between" them.
"""

import contextlib
import os
import sys

import keras
import numpy as np

import tfrun

WHERE, RANK = sys.argv[1], int(sys.argv[2])
ONE_MACHINE = WHERE != "between"  # else others go on where the chief saves


def die(where):
    here = tfrun.world()
    if where == WHERE and (here.round, here.rank) == (0, RANK):
        os.kill(os.getpid(), 9)


class Dies(keras.callbacks.Callback):
    """Dies in the second step; else it trains until all workers are there again."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            die(self.where)

    def on_epoch_end(self, epoch, logs=None):
        here = tfrun.world()
        waits = self.where == WHERE and RANK >= 0
        self.model.stop_training = not waits or (here.size == 2 and here.round > 0)


x = np.random.default_rng(0).random((64, 4), "float32")
y = x.sum(axis=1)
keras.utils.set_random_seed(0)
with contextlib.nullcontext() if ONE_MACHINE else tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


def train(trained, where):
    """How many epochs it takes depends on when somebody joins: the learning rate is 0 then."""
    trained.optimizer.learning_rate = 0.0 if where == WHERE else 0.1
    options = {"batch_size": 16, "epochs": 100_000, "shuffle": False, "verbose": 0}
    trained.fit(x, y, callbacks=[Dies(where)], **options)


train(model, "first")
die("between")
model.save("first.keras")
if ONE_MACHINE:
    model = keras.models.load_model("first.keras")
train(model, "second")
model.save("second.keras")
for name in ("first", "second"):
    loaded = keras.models.load_model(f"{name}.keras")
    print("RES", name, *(f"{float(np.abs(w).sum()):.7f}" for w in loaded.get_weights()), flush=True)
