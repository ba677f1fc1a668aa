"""Several strategies in one process, one after the other; what each of them trains to."""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

if os.environ.get("CRASH") and tfrun.world().rank == 1:
    ctypes.string_at(0)


def after_the_other(make):
    """Makes it when the other worker has its own, and waits for this one in a collective."""
    if tfrun.world().rank == 0:
        time.sleep(3)
    return make()


made = {
    "workers": tf.distribute.MultiWorkerMirroredStrategy(),
    "mirrored": tf.distribute.MirroredStrategy(),
    "one": tf.distribute.OneDeviceStrategy("CPU:0"),
    "workers again": after_the_other(tf.distribute.MultiWorkerMirroredStrategy),
}
keras.config.set_floatx("float64")
X = np.random.RandomState(0).rand(48, 6)
results = {}
for name, strategy in made.items():
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, 0.9), "mse")
    model.fit(X, X.sum(axis=1), batch_size=12, epochs=2, shuffle=False, verbose=0)
    results[name] = [v.numpy().tolist() for v in model.variables]
results["replicas"] = [strategy.num_replicas_in_sync for strategy in made.values()]
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))
