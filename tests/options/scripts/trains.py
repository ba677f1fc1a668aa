"""Trains in the way that MODE says, and writes what came out and what it saw of tfrun's options."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config

import tfrun

MODE, OUT = os.environ["MODE"], Path(os.environ["TEST_OUT"])
keras.config.set_floatx("float64")
drawn = random.random()  # what --seed says
HERE = tfrun.world()
strategy = tfrun.strategy()
numbers = np.random.default_rng(0)
X = numbers.normal(size=(48, 4))
Y = X.sum(axis=1, keepdims=True)
EPOCHS, BATCH = 2, 12  # four steps an epoch
calls = {"batch_end": 0, "sync_checks": 0, "started_at": 0}


snapshots = []


def watch_snapshots() -> None:
    from tfrun.state import snapshot

    write = snapshot.write_and_tell

    def noted(folder, kept):
        snapshots.append(int(kept.values["iterations"]))
        return write(folder, kept)

    snapshot.write_and_tell = noted


def watch_sync_checks() -> None:
    from tfrun.train import sync_checks

    check = sync_checks.check_in_sync

    def counted(named):
        calls["sync_checks"] += 1
        check(named)

    sync_checks.check_in_sync = counted


class Calls(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        calls["batch_end"] += 1
        at(int(self.model.optimizer.iterations.numpy()))


def at(step):
    """DIES: "round:rank:step", one that dies there."""
    if f"{HERE.round}:{HERE.rank}:{step}" in os.environ.get("DIES", "").split():
        os.kill(os.getpid(), 9)


def made():
    keras.utils.set_random_seed(1)
    if MODE == "servers":
        return recommender()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(3, activation="tanh"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.5), loss="mse")
    return model


def recommender():
    """A table of users and one of things, on the servers; only rows travel."""
    with strategy.scope():
        users, things = keras.Input((), dtype="int64"), keras.Input((), dtype="int64")
        rows = [keras.layers.Embedding(n, 4)(i) for n, i in ((12, users), (7, things))]
        model = keras.Model([users, things], keras.layers.Dense(1)(keras.layers.multiply(rows)))
        model.compile(keras.optimizers.Adagrad(0.05), loss="mse")
    return model


def fit(model):
    data = (X, Y)
    if MODE == "servers":
        ids = tuple(numbers.integers(0, n, len(X)) for n in (12, 7))
        data = tf.data.Dataset.from_tensor_slices((ids, Y)).shuffle(len(X), seed=1)
        data = data.batch(BATCH).repeat()
        done = model.fit(data, epochs=EPOCHS, steps_per_epoch=4, verbose=0, callbacks=[Calls()])
    else:
        more = {"validation_data": data} if MODE == "evaluator" else {}
        done = model.fit(
            *data,
            **{"epochs": EPOCHS, "batch_size": BATCH, "shuffle": False, "verbose": 0},
            callbacks=[Calls()],
            **more,
        )
    return done.history["loss"]


def loop(model):
    @tf.function
    def step(batch):
        def on_replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((model(x) - y) ** 2) / BATCH
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(on_replica, args=batch), axis=None)

    data = tfrun.Dataset.from_arrays((X, Y), batch_size=BATCH, shuffle=False)
    losses = []
    if MODE == "loop":
        state = tfrun.TrainState(model=model, optimizer=model.optimizer)
        calls["started_at"] = state.step
        for batch in state.steps(data, epochs=EPOCHS):
            losses.append(float(step(batch)))
            calls["batch_end"] += 1
            at(state.step)
    else:
        for _ in range(EPOCHS):
            for batch in strategy.experimental_distribute_dataset(data):
                losses.append(float(step(batch)))
    return [float(np.mean(losses[-4:]))]


watch_sync_checks()
watch_snapshots()
model = made()
losses = loop(model) if MODE in ("loop", "own loop") else fit(model)
weights = [weight.tolist() for weight in model.get_weights()]
host = sys.modules.get("tfrun.engine.host_collective")
if HERE.is_chief:
    found = {
        "losses": losses,
        "weights": weights,
        "digest": hashlib.sha256(json.dumps(weights).encode()).hexdigest(),
        "iterations": int(model.optimizer.iterations.numpy()),
        "world": HERE.size,
        "replicas": HERE.replicas,
        "round": HERE.round,
        "drawn": drawn,
        "calls": calls,
        "deterministic": config.is_op_determinism_enabled(),
        "host collective": bool(host and host._calls),
        "overlaps": bool(host and host._calls and host._calls._thread),
        "forked": "zygote" in Path("/proc/self/cmdline").read_text(),
        "threads": os.environ.get("TF_NUM_INTRAOP_THREADS"),
        "max staleness": getattr(strategy, "max_staleness", None),
        "snapshots": snapshots,
        "is main": Path(sys.argv[0]).stem,
    }
    OUT.write_text(json.dumps(found))
print("said by", HERE.rank, flush=True)
