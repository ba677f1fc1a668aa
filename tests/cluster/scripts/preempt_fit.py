"""Two `fit` calls; FAULT says whom SIGTERM hits, and where: "launcher:1-5" is epoch 1, batch 5.

Other places: "trace" (of the first train step), "valid" (validation of epoch 1), "between" (the
two calls), "start" (the script's). Where no step is about to end, the script stands still: what is
saved is saved without it. KILL=1: worker 1 is killed first, and it happens in the round after.
"""

import hashlib
import os
import signal
import time

import keras
import numpy as np
import psutil

import tfrun

HERE = tfrun.world()
WHO, _, WHERE = os.environ.get("FAULT", "").partition(":")
KILL = bool(os.environ.get("KILL"))
RANK = 1 if WHO == "worker" else 0


def at(place):
    if place != WHERE or HERE.rank != RANK or HERE.round != KILL:
        return
    worker = psutil.Process()
    agent = worker.parent().parent()  # the worker's parent is the zygote
    victim = {"agent": agent, "launcher": agent.parent()}.get(WHO, worker)
    victim.send_signal(signal.SIGTERM)
    if "-" in place:
        Watch.pause = 0.3  # so that it is saved within a few steps
    elif not KILL:
        time.sleep(100)


class Watch(keras.callbacks.Callback):
    in_step, pause = False, 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        Watch.in_step = True
        at(f"{self.epoch}-{batch}")
        if KILL and HERE.round == 0 and HERE.rank == 1 and (self.epoch, batch) == (2, 10):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch, logs=None):
        Watch.in_step = False
        time.sleep(Watch.pause)

    def on_test_batch_end(self, batch, logs=None):
        if self.epoch == 1:
            at("valid")


def loss(wanted, given):
    if Watch.in_step:  # Python runs this only to trace it
        at("trace")
    return keras.ops.mean((wanted - given) ** 2)


at("start")
with tfrun.strategy().scope():
    inputs = keras.Input((8,))
    hidden = keras.layers.Dropout(0.1)(keras.layers.Dense(16)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(optimizer="adam", loss=loss)
x = np.random.RandomState(0).rand(320, 8).astype("float32")
y = x.sum(1, keepdims=True)
common = {"batch_size": 16, "verbose": 2, "callbacks": [Watch()]}
first = model.fit(x, y, epochs=3, validation_data=(x[:64], y[:64]), **common)
at("between")
second = model.fit(x, y, epochs=1, **common)
digest = hashlib.sha256()
for variable in [*model.variables, *model.optimizer.variables]:
    digest.update(variable.numpy().tobytes())
print("WEIGHTS", digest.hexdigest(), first.epoch, first.history["val_loss"], second.history)
