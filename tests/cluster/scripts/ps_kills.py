"""Trains on parameter servers while its own workers, a server or the chief are killed; counts.

Two tables, on a server each, have a row for each sample, which every step on the sample raises by
a sixteenth: what has been trained how often, on either server, can be read from them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.data.ledger.proof import examine
from tfrun.job.settings import settings

KILLS = int(os.environ.get("TEST_KILLS", 0))
SERVER_IN, CHIEF_IN = os.environ.get("TEST_SERVER_IN"), os.environ.get("TEST_CHIEF_IN")
SEED = int(os.environ.get("TEST_SEED", 0))
ROUND = int(os.environ["TFRUN_ROUND"])
RUN = Path(os.environ["TFRUN_RUN_DIR"])
SAMPLES, BATCH = 960, 16
strategy = tfrun.strategy()
x = np.random.RandomState(0).rand(SAMPLES, 20).astype("float32")
y = (x.sum(1) > 10).astype("float32")
number = np.arange(SAMPLES)
keras.utils.set_random_seed(1)


class Loss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        wrong = keras.losses.binary_crossentropy(y_true[:, None], y_pred[:, :1], from_logits=True)
        return wrong - y_pred[:, 1] - y_pred[:, 2]


with strategy.scope():
    inputs = keras.Input((20,)), keras.Input((), dtype="int64")
    visits = [keras.layers.Embedding(SAMPLES, 1, embeddings_initializer="zeros") for _ in range(2)]
    hidden = keras.layers.Dense(32, activation="relu")(inputs[0])
    outputs = [keras.layers.Dense(1)(hidden), *(table(inputs[1]) for table in visits)]
    model = keras.Model(inputs, keras.layers.Concatenate()(outputs))
    model.compile(keras.optimizers.SGD(1 / 16), Loss(reduction="sum"))


def processes(role: str) -> dict[str, int]:
    """The process of each task of a role, the newest one."""
    found = {}
    for line in (RUN / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if "pid" in event and str(event.get("task", "")).startswith(role):
            found[event["task"]] = event["pid"]
    return found


def newest() -> int:
    """The step of the newest checkpoint."""
    names = [path.name.rpartition("-")[2] for path in (RUN / "checkpoints").glob("ckpt-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


class Samples(keras.callbacks.Callback):
    """Kills in the middle of steps, from another thread; ends the training when that is done."""

    def __init__(self) -> None:
        super().__init__()
        self.samples, self.batches, self.killed = [], 0, []

    def on_train_begin(self, logs=None):
        self.thread = threading.Thread(target=self.kill, daemon=True)
        self.begin = trained

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 20 and KILLS:
            self.thread.start()
        if kind == SERVER_IN and ROUND == 0 and self.batches == 60:
            os.kill(processes("ps")["ps:0"], signal.SIGKILL)
        if kind == CHIEF_IN and ROUND == 1 and newest() > self.begin:
            os.kill(os.getpid(), signal.SIGKILL)

    def kill(self):
        drawn = random.Random(SEED)
        while len(self.killed) < KILLS:
            _task, pid = drawn.choice(sorted(processes("worker").items()))
            if pid in killed:
                time.sleep(0.05)  # polled: its successor is being started
                continue
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            self.killed.append(pid)
            at = self.batches
            while self.batches < at + drawn.randint(5, 60):
                time.sleep(0.01)

    def on_epoch_end(self, epoch, logs=None):
        self.samples.append(float(self.model._loss_tracker.count.numpy()))
        if KILLS and self.batches >= 20 and not self.thread.is_alive():
            self.model.stop_training = True


def arrays() -> dict:
    return {"x": (x, number), "y": y, "batch_size": BATCH}


def pipeline() -> dict:
    made = tf.data.Dataset.from_tensor_slices(((x, number), y))
    return {"x": made.shuffle(SAMPLES, seed=SEED).batch(BATCH)}


def parts() -> dict:
    """Epochs of two thirds of what the workers read on and on."""
    return {"x": pipeline()["x"].repeat(), "steps_per_epoch": SAMPLES // BATCH * 2 // 3}


killed: set[int] = set()
resumed_from = newest()
results = {"seed": SEED, "round": ROUND, "resumed_from": resumed_from}
trained, before = 0, np.zeros([2, SAMPLES])
for kind in os.environ.get("TEST_DATA", "arrays").split():
    data = {"arrays": arrays, "pipeline": pipeline, "parts": parts}[kind]()
    seen = Samples()
    epochs = 3000 if KILLS else 3
    history = model.fit(**data, epochs=epochs, verbose=0, callbacks=[seen])
    trained += len(history.epoch) * data.get("steps_per_epoch", SAMPLES // BATCH)
    spaces = list(model.__dict__.get("_tfrun_workspaces", {}).values())
    rows = np.stack([table.embeddings.numpy()[:, 0] * 16 for table in visits])
    once, before = rows - before, rows
    results[kind] = {
        "iterations": int(model.optimizer.iterations.numpy()),
        "trained": trained,
        "counted": float(spaces[0].ledger.read()[0]) if spaces else 0.0,
        "batches": seen.batches,
        "epochs": len(history.epoch),
        "samples": sorted(set(seen.samples)),
        "killed": len(seen.killed),
        "visits": [sorted(set(row.tolist())) for row in once],
        "sums": once.sum(1).tolist(),
        "servers": sorted({table.embeddings._value.device for table in visits}),
    }
    print(kind, json.dumps(results[kind]), flush=True)
if settings().ledger:
    report = examine(RUN)
    names = ("data", "epoch", "consumed", "exact")
    results["ledger"] = [[getattr(epoch, name) for name in names] for epoch in report.epochs]
    results["not_covered"] = list(report.not_covered)
if out := os.environ.get("TEST_OUT"):
    Path(out).write_text(json.dumps(results))
