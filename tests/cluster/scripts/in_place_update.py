"""A loop whose step takes a while after its update, and then reduces losses; a worker dies there.

With "eager" the loop reduces more, after the step. KILL is the task and the step. A worker is known
by its process: to ask for its place is to start again.
"""

import hashlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

BATCH, SPINS, SIZE, SECONDS = 8, 60, 600, 0.3

strategy = tfrun.strategy()
keras.utils.set_random_seed(3)
with strategy.scope():
    norm = keras.layers.BatchNormalization()
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8), norm, keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.Adam(0.01)
x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
dataset = tfrun.Dataset.from_arrays(x, batch_size=BATCH, shuffle=True)


def spin(given):
    """Computes for a while."""
    matrix = tf.eye(SIZE) + given * 0.0
    return tf.while_loop(lambda i, _: i < SPINS, lambda i, m: (i + 1, m @ m), (0, matrix))[1][0, 0]


@tf.function
def train_step(batch):
    def on_replica(x):
        with tf.GradientTape() as tape:
            errors = tf.square(model(x, training=True))[:, 0]
            loss = tf.reduce_sum(errors) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        with tf.control_dependencies([spin(tf.cast(optimizer.iterations.value, tf.float32))]):
            done = tf.identity(loss)
        return done, errors, tf.reduce_sum(tf.abs(x))

    losses, errors, sizes = strategy.run(on_replica, args=(batch,))
    total = strategy.reduce("SUM", losses, axis=None)
    return total, strategy.reduce("MEAN", errors, axis=0), tf.sqrt(sizes)


def own_task():
    """As whom this process was started; "" for a successor."""
    lines = Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl").read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    own = [e for e in events if e["event"] == "worker_started" and e["pid"] == os.getpid()]
    return own[0]["task"].partition(":")[2] if own and own[0]["round"] == 0 else ""


TASK = own_task()
state = tfrun.TrainState(model=model, optimizer=optimizer)
told = []
for batch in state.steps(dataset, epochs=4):
    if [TASK, str(state.step)] == os.environ["KILL"].split(":"):
        threading.Timer(SECONDS, os.kill, (os.getpid(), signal.SIGKILL)).start()
    loss, error, sizes = train_step(batch)
    if "eager" in sys.argv:
        sizes = strategy.reduce("SUM", sizes, axis=None)
        told.append(float(sizes).hex())
    told += [float(loss).hex(), float(error).hex()]
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", state.step, hashlib.sha256(weights).hexdigest(), flush=True)
print("TOLD", len(told), hashlib.sha256(str(told).encode()).hexdigest(), flush=True)
