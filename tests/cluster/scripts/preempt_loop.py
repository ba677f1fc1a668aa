"""A custom loop of three epochs; FAULT as in preempt_fit.py: "worker:1-3", "launcher:valid"."""

import hashlib
import os
import signal
import time

import keras
import numpy as np
import psutil
import tensorflow as tf

import tfrun

HERE = tfrun.world()
WHO, _, WHERE = os.environ.get("FAULT", "").partition(":")
RANK = 1 if WHO == "worker" else 0
pause = 0.0


def at(place):
    global pause
    if place != WHERE or HERE.rank != RANK:
        return
    worker = psutil.Process()
    victim = worker.parent().parent().parent() if WHO == "launcher" else worker
    victim.send_signal(signal.SIGTERM)
    if "-" in place:
        pause = 0.3
    else:
        time.sleep(100)


strategy = tfrun.strategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer=optimizer, loss="mse")
x = np.random.RandomState(0).rand(160, 8).astype("float32")
data = tfrun.Dataset.from_arrays((x, x.sum(1, keepdims=True)), batch_size=16, shuffle=True, seed=1)
state = tfrun.TrainState(model=model, optimizer=optimizer)


@tf.function
def train_step(batch):
    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2) / HERE.size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    strategy.run(step, args=(batch,))


for epoch in range(state.epoch, 3):
    for batch in state.steps(data, epochs=epoch + 1):
        at(f"{epoch}-{state.step_in_epoch}")
        train_step(batch)
        time.sleep(pause)
    if epoch == 1:
        at("valid")
digest = hashlib.sha256()
for variable in [*model.variables, *optimizer.variables]:
    digest.update(variable.numpy().tobytes())
print("WEIGHTS", digest.hexdigest(), state.step)
