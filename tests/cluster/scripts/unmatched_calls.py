"""Calls that not every worker makes, so that some wait in vain; the first argument names the kind.

"slow" is none of them: one worker has much to do by itself when all others have ended.
"""

import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfrun

KIND, RANK = sys.argv[1], tfrun.world().rank
if KIND == "before" and RANK:
    sys.exit(0)

x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)
strategy = tfrun.strategy()


def compiled():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    return model


with strategy.scope():
    model = compiled()


class Evaluate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if KIND == "callback" and RANK == 0:
            self.model.evaluate(x, y, batch_size=16, verbose=0)  # here: callback


model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[Evaluate()])  # here: fit
if KIND == "again" and RANK == 0:
    model.fit(x, y, batch_size=16, verbose=0)  # here: again

if KIND == "evaluate" and RANK == 0:
    model.evaluate(x, y, batch_size=16, verbose=0)  # here: evaluate
if KIND == "elsewhere":
    if RANK == 0:
        model.evaluate(x, y, batch_size=16, verbose=0)  # here: elsewhere 0
    else:
        model.predict(x, batch_size=16, verbose=0)  # here: elsewhere 1
if KIND == "reduce" and RANK == 0:
    strategy.reduce("SUM", tf.constant(1.0), axis=None)  # here: reduce
if KIND == "loop":

    @tf.function
    def step(value):
        def on_replica(value):
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(value))

        return strategy.run(on_replica, (value,))

    for _ in range(3 if RANK else 5):
        step(tf.constant([1.0, 2.0]))  # here: loop
if KIND in ("same", "parted"):
    shape = [4] if KIND == "same" else [200_000]

    @tf.function
    def summed():
        def on_replica():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(shape))

        return strategy.run(on_replica)

    for _ in range(2):
        summed()  # here: all
    size = tfrun.world().size
    if (2 if size == 4 else size - 1) > RANK:
        strategy.reduce("SUM", tf.ones([4]), axis=None)  # here: most
    else:
        summed()  # here: last
if KIND == "hard":
    if RANK:
        os._exit(0)
    model.fit(x, y, batch_size=16, epochs=1, verbose=0)  # here: hard
if KIND == "slow" and RANK == 0:
    own = compiled()
    until = time.monotonic() + 8  # longer than anybody would wait who took it for a wait
    while time.monotonic() < until:
        own.fit(x, y, batch_size=16, epochs=1, verbose=0)
        own.predict(x, verbose=0)
        time.sleep(0.3)  # slow, and nothing for other tests' jobs to wait for
    model.save(sys.argv[2])
    print("LOSS", own.evaluate(x, y, verbose=0)[0] < 1e3, flush=True)
