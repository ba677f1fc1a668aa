"""A training whose machines crash, and that waits for them where a test needs to see them return.

FAULTS: "round:rank:step" with spaces between: that worker's machine crashes there; DEATHS: the
worker alone. SLOW: how many seconds a later round takes before it has its state. WAITS:
"round:step:event:count" likewise: the chief waits there until the job has had so many events of
that name, and says so by a file "waiting-ROUND". WANTED: "round:rank:step:who" likewise: SIGTERM to
that worker, its agent, or the launcher. VALID: the same; it happens in the validation after that
step, in which all workers then stand still; "worker" is killed. LOOP: "fit", or "steps" for a
custom loop; "outside" for one that computes what its step is given. NOISY: the model has
BatchNormalization and Dropout, and is validated.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import keras
import numpy as np
import psutil
import tensorflow as tf

import tfrun

HERE = tfrun.world()
EVENTS = Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl")
FAULTS, DEATHS = (
    [tuple(map(int, text.split(":"))) for text in os.environ.get(name, "").split()]
    for name in ("FAULTS", "DEATHS")
)
VALID = [text.split(":") for text in os.environ.get("VALID", "").split()]
WANTED = [text.split(":") for text in os.environ.get("WANTED", "").split()]
WAITS = [text.split(":") for text in os.environ.get("WAITS", "").split()]
LOOP, NOISY = os.environ.get("LOOP", "fit"), os.environ.get("NOISY")
EPOCHS, BATCH, SECONDS = 4, 24, 40


def after_step(step):
    if (HERE.round, HERE.rank, step) in FAULTS:
        crash()
    if (HERE.round, HERE.rank, step) in DEATHS:
        os.kill(os.getpid(), signal.SIGKILL)
    for number, rank, when, who in WANTED:
        if (HERE.round, HERE.rank, step) == (int(number), int(rank), int(when)):
            process(who).send_signal(signal.SIGTERM)
    for number, when, event, count in WAITS:
        if HERE.is_chief and (HERE.round, step) == (int(number), int(when)):
            wait_for(event, int(count))


def in_validation(step):
    for number, rank, when, who in VALID:
        if (HERE.round, step) == (int(number), int(when)):
            if HERE.rank == int(rank):
                process(who).send_signal(signal.SIGKILL if who == "worker" else signal.SIGTERM)
            time.sleep(100)


def process(who):
    worker = psutil.Process()
    agent = worker.parent().parent()
    assert "tfrun.agent." in " ".join(agent.cmdline())
    return {"worker": worker, "agent": agent, "launcher": agent.parent()}[who]


def crash():
    """The machine is gone: its agent first, without a word."""
    process("agent").kill()
    signal.pause()


def wait_for(event, count):
    Path(f"waiting-{HERE.round}").touch()
    deadline = time.monotonic() + SECONDS
    while EVENTS.read_text().count(f'"event": "{event}"') < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Elastic(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        after_step(int(self.model.optimizer.iterations.numpy()))

    def on_test_batch_end(self, batch, logs=None):
        in_validation(int(self.model.optimizer.iterations.numpy()))


if HERE.round:
    time.sleep(float(os.environ.get("SLOW") or 0))
keras.utils.set_random_seed(3)
strategy = tfrun.strategy()
with strategy.scope():
    noisy = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="tanh"),
            *(noisy if NOISY else []),
            keras.layers.Dense(1),
        ]
    )
    optimizer, mae = keras.optimizers.Adam(0.01), keras.metrics.MeanAbsoluteError()
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
x = np.random.RandomState(0).rand(1001, 8).astype("float32")
y = np.sin(x.sum(1, keepdims=True))


def fit():
    more = {"validation_data": (x[:48], y[:48])} if VALID or NOISY else {}
    common = {"batch_size": BATCH, "epochs": EPOCHS, "verbose": 2, "callbacks": [Elastic()]}
    history = model.fit(x, y, **common, **more)
    return history.history


@tf.function
def train_step(batch):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            loss = tf.reduce_sum(tf.square(predicted - y)) / BATCH
        mae.update_state(y, predicted)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    strategy.run(on_replica, batch)


def loop():
    data = tfrun.Dataset.from_arrays((x, y), batch_size=BATCH, shuffle=True, seed=1)
    with strategy.scope():
        optimizer.build(model.trainable_variables)
    with tfrun.TrainState(model=model, optimizer=optimizer, metrics=[mae]) as state:
        for batch in state.steps(data, epochs=EPOCHS):
            if LOOP == "outside":
                batch = tf.nest.map_structure(tf.identity, batch)
            train_step(batch)
            after_step(state.step + 1)
    return {"mae": [float(mae.result())]}


history = fit() if LOOP == "fit" else loop()
if HERE.is_chief:
    state = [np.asarray(variable) for variable in [*model.variables, *optimizer.variables]]
    np.savez("weights.npz", *state)
    Path("found.json").write_text(json.dumps({"history": history, "workers": HERE.size}))
print("ended with", HERE.size, flush=True)
