"""A loop of the script's own whose functions say when they are traced; worker 1 dies in it once."""

import json
import os
import signal
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

DIES_AT, EPOCHS, BATCH = 10, 60, 8
strategy = tfrun.strategy()
keras.utils.set_random_seed(3)
with strategy.scope():
    layers = [keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    seen = keras.metrics.Mean("seen")
x = np.random.default_rng(0).normal(size=(28, 4)).astype("float32")  # the last batch is smaller
data = tf.data.Dataset.from_tensor_slices({"x": x, "y": x[:, :1]}).batch(BATCH)
valid = strategy.experimental_distribute_dataset(data)


def says(name, x):
    print(f"TRACED {name} {x.shape[0]}", flush=True)


@tf.function
def train(batch, *, scale, name="train"):
    says(name, batch["x"])

    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / BATCH * scale
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        seen.update_state(loss)
        return loss

    return strategy.reduce("SUM", strategy.run(on_replica, (batch["x"], batch["y"])), axis=None)


@tf.function
def check(batch):
    says("check", batch["x"])
    return tf.reduce_sum(model(batch["x"]))


def twin(name):
    @tf.function
    def one(batch):
        says(name, batch["x"])
        return tf.reduce_sum(batch["x"])

    return one


@tf.function
def needs(batch):
    says("needs", batch["x"])
    return tf.reduce_sum(batch["x"]) * comes_later


@tf.function
def other(batch):
    says("other", batch["x"])
    return tf.reduce_sum(batch["x"]) * set_later


set_later = 1.0
twins = twin("twin a"), twin("twin b")


def is_worker(number):
    """Whether this process was started as this worker, and not as a successor."""
    lines = Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl").read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    own = [e for e in events if e["event"] == "worker_started" and e["pid"] == os.getpid()]
    return [e["task"] for e in own[:1]] == [f"worker:{number}"]


def has_grown():
    """Whether a successor has come."""
    return '"event": "grown"' in Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl").read_text()


IS_VICTIM = is_worker(1) and "alone" not in os.environ["KILLS"]
state = tfrun.TrainState(model=model, optimizer=optimizer, metrics=[seen])
comes_later = set_later = 2.0


@tf.function
def late(batch):
    says("late", batch["x"])
    return tf.reduce_sum(batch["x"])


for epoch in range(state.epoch, EPOCHS):
    for batch in state.steps(data, epochs=epoch + 1):
        if IS_VICTIM and state.step == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        train(batch, scale=0.5)
        made = [
            float(strategy.reduce("SUM", f(batch), axis=None)) for f in (needs, late, other, *twins)
        ]
        if not ("alone" in os.environ["KILLS"] or has_grown()):
            time.sleep(0.1)  # there is a successor to come
    total = 0.0
    for batch in valid:
        total += float(strategy.reduce("SUM", strategy.run(check, (batch,)), axis=None))
print("MADE", made, flush=True)
print("BITS", float(seen.result()).hex(), total.hex(), flush=True)
print("WEIGHTS", [w.tobytes().hex() for w in model.get_weights()], flush=True)
