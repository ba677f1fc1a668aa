"""The last worker is lost in the middle of a step; the others tell what state they hold."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time

import keras
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
RANK, WORKERS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SIGNAL = getattr(signal, os.environ["TEST_SIGNAL"])

# Three packs of gradients: a loss may fall between the first one's all-reduce and the last's.
with strategy.scope():
    weights = [keras.Variable(tf.zeros([1_500_000]), name=f"w{i}") for i in range(3)]
    optimizer = keras.optimizers.SGD(1.0, momentum=0.5)
    optimizer.build(weights)


@tf.function
def train():
    def step():
        # The gradient is 1 everywhere on every worker, whatever the weights are.
        gradients = [tf.ones_like(w) / WORKERS for w in weights]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    strategy.run(step)


def momentum_after(steps: int) -> tuple[float, float]:
    weight = velocity = 0.0
    for _ in range(steps):
        velocity = 0.5 * velocity - 1.0
        weight += velocity
    return weight, velocity


train()
if RANK == WORKERS - 1:
    delay = random.Random(int(os.environ["TEST_SEED"])).uniform(0.3, 0.6)
    threading.Timer(delay, os.kill, (os.getpid(), SIGNAL)).start()

started = time.monotonic()
noticed, error = 0.0, ""
while time.monotonic() - started < 40:
    before = time.monotonic()
    try:
        train()
    except tf.errors.OpError as failure:
        noticed, error = time.monotonic() - before, type(failure).__name__
        break

steps = int(optimizer.iterations.numpy())
weight, velocity = momentum_after(steps)
result = {
    "error": error,
    "seconds to notice": noticed,
    "steps": steps,
    "weights": [bool(tf.reduce_all(w.value == weight)) for w in weights],
    "momenta": [
        bool(tf.reduce_all(v.value == velocity)) for v in optimizer.variables if len(v.shape)
    ],
}
with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
    json.dump(result, file)
