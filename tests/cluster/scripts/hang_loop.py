"""A loop in which a worker hangs, one dies while the other is stuck, and the chief is busy."""

import hashlib
import os
import signal
import time

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE = tfrun.world()
strategy = tfrun.strategy()
with strategy.scope():
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
x = np.random.RandomState(0).rand(160, 8).astype("float32")


@tf.function
def train_step(x):
    def on_replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True) ** 2) / 16
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    strategy.run(on_replica, args=(x,))


def use_the_processor(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


state = tfrun.TrainState(model=model, optimizer=optimizer)
data = tfrun.Dataset.from_arrays(x, batch_size=16, shuffle=True, seed=1)
for batch in state.steps(data, epochs=4):
    train_step(batch)
    if state.step == 15 and HERE.round == 0 and HERE.rank == 1:
        time.sleep(1000)
    if state.step == 20 and HERE.round == 1:
        if HERE.is_chief:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1000)
    if state.step == 25 and HERE.is_chief:
        use_the_processor(13.0)  # an evaluation, say
digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.variables)).hexdigest()
print("WEIGHTS", digest, state.step, "round", HERE.round)
