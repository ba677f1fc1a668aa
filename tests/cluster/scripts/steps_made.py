"""Executions of three steps that do not divide an epoch of seven: `steps_made.py OUT [kill]`.

With "kill", worker 1 dies within an execution of each training that may not end with its epoch.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

keras.config.set_floatx("float64")
HERE, OUT, KILLS = tfrun.world(), Path(sys.argv[1]), "kill" in sys.argv
strategy = tfrun.strategy()
random = np.random.RandomState(0)
x, y = random.rand(70, 3), random.rand(70, 1)
calls = 0


def generator(most=1000):
    for number in range(most):
        at = number % 7 * 10
        yield x[at:][:10], y[at:][:10]


def pipeline():
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(10)


# Its data, `fit`'s arguments, in which round and step worker 1 dies.
CASES = {
    "repeat": (lambda: pipeline().repeat(), {"steps_per_epoch": 7}, (0, 5)),
    "generator": (generator, {"steps_per_epoch": 7}, (1, 14)),
    "one pass": (lambda: generator(7), {"epochs": 1}, None),
    "unknown": (lambda: pipeline().filter(lambda *_: True), {}, (2, 6)),
    "counted": (pipeline, {}, None),
    "too short": (lambda: pipeline().take(5), {"steps_per_epoch": 7}, None),
    "tfrun": (lambda: tfrun.Dataset.from_arrays((x, y), batch_size=10), {}, None),
}


def run(make, options, death):
    global calls
    calls = 0

    def counted(loss):
        global calls
        calls += 1
        if KILLS and HERE.rank == 1 and death == (HERE.round, calls):
            os.kill(os.getpid(), signal.SIGKILL)
        return loss

    class Loss(keras.losses.Loss):
        def call(self, y_true, y_pred):
            loss = tf.square(y_true - y_pred)[:, 0]
            return tf.ensure_shape(tf.grad_pass_through(through)(loss), loss.shape)

    def through(loss):
        return tf.numpy_function(counted, [loss], loss.dtype)

    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")]
        )
        model.compile(keras.optimizers.SGD(0.1), Loss(), steps_per_execution=3)
    history = model.fit(make(), **{"epochs": 2, **options}, verbose=0).history
    steps = int(model.optimizer.iterations.numpy())
    return {"losses": history["loss"], "steps": steps, "weights": model.get_weights()[0].tolist()}


found = {name: run(*case) for name, case in CASES.items()}
if HERE.is_chief:
    OUT.write_text(json.dumps(found))
