"""Trains on parameter servers while its own workers, or a server, are killed; what was counted."""

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

import tfrun

KILLS, SERVER_AT = int(os.environ.get("TEST_KILLS", 0)), int(os.environ.get("TEST_SERVER_AT", 0))
FIRST_ROUND = os.environ["TFRUN_ROUND"] == "0"
strategy = tfrun.strategy()
x = np.random.RandomState(0).rand(960, 20).astype("float32")
y = (x.sum(1) > 10).astype("float32")
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((20,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )


def processes(role: str) -> dict[str, int]:
    """The process of each task of a role, the newest one."""
    found = {}
    for line in Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if "pid" in event and str(event.get("task", "")).startswith(role):
            found[event["task"]] = event["pid"]
    return found


class Samples(keras.callbacks.Callback):
    """Kills in the middle of steps, from another thread; ends the training when that is done."""

    def __init__(self) -> None:
        super().__init__()
        self.samples, self.batches, self.killed = [], 0, []

    def on_train_begin(self, logs=None):
        self.thread = threading.Thread(target=self.kill, daemon=True)

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 20 and KILLS:
            self.thread.start()
        if FIRST_ROUND and self.batches == SERVER_AT:
            os.kill(processes("ps")["ps:0"], signal.SIGKILL)

    def kill(self):
        drawn = random.Random(int(os.environ.get("TEST_SEED", 0)))
        while len(self.killed) < KILLS:
            _task, pid = drawn.choice(sorted(processes("worker").items()))
            if pid in self.killed:
                time.sleep(0.05)  # polled: its successor is being started
                continue
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)
            at = self.batches
            while self.batches < at + drawn.randint(5, 60):
                time.sleep(0.01)

    def on_epoch_end(self, epoch, logs=None):
        self.samples.append(float(self.model._loss_tracker.count.numpy()))
        if KILLS and self.batches >= 20 and not self.thread.is_alive():
            self.model.stop_training = True


seen = Samples()
history = model.fit(x, y, batch_size=16, epochs=100000 if KILLS else 5, verbose=0, callbacks=[seen])
ledger = next(iter(model._tfrun_workspaces.values())).ledger
result = {
    "iterations": int(model.optimizer.iterations.numpy()),
    "counted": float(ledger.read()[0]),
    "batches": seen.batches,
    "epochs": len(history.epoch),
    "samples": sorted(set(seen.samples)),
    "killed": len(seen.killed),
    "round": int(os.environ["TFRUN_ROUND"]),
    "accuracy": history.history["accuracy"][-1],
}
print(json.dumps(result), flush=True)
if out := os.environ.get("TEST_OUT"):
    Path(out).write_text(json.dumps(result))
