"""A training that is cut off three times, with a survivor that never comes out of its own Python.

In round 0 it stands in a callback at the end of a batch, in round 1 in a function that its train
step calls, in round 2 in a callback at the begin of a batch. One worker alone stands in the first.
"""

import hashlib
import os
import signal
import time

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

import tfrun

HERE = tfrun.world()
STEPS = {0: 10, 1: 25, 2: 38} if os.environ.get("FAULT") == "stuck" else {}  # by round
STEP = STEPS.get(HERE.round, -1)


def stand():
    if HERE.rank or HERE.size == 1:
        time.sleep(1000)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


class Stuck(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if HERE.round == 2 and int(self.model.optimizer.iterations) == STEP:
            stand()

    def on_train_batch_end(self, batch, logs=None):
        if HERE.round == 0 and int(self.model.optimizer.iterations) == STEP:
            stand()


class Model(keras.Sequential):
    def train_step(self, data):
        @tf.py_function(Tout=tf.int64)
        def look(step):
            if HERE.round == 1 and step == STEP:
                stand()
            return step

        with tf.control_dependencies([look(self.optimizer.iterations.value)]):
            data = tf.nest.map_structure(tf.identity, data)
        return super().train_step(data)


with tfrun.strategy().scope():
    layers = [keras.layers.Dense(16), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
    model = Model([keras.Input((8,)), *layers])
    model.compile(optimizer="adam", loss="mse")
x = np.random.RandomState(0).rand(320, 8).astype("float32")
model.fit(x, x.sum(1), batch_size=16, epochs=3, verbose=0, callbacks=[Stuck()])
digest = hashlib.sha256()
for variable in [*model.variables, *model.optimizer.variables]:
    digest.update(variable.numpy().tobytes())
print("deterministic" if is_op_determinism_enabled() else "as it comes")
print("WEIGHTS", digest.hexdigest(), [0, 1, 2])
