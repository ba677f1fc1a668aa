"""Digits under the host collective; KILLS is "round:rank:epoch:batch", several."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfrun
from tfrun.engine import host_collective

HERE = tfrun.world()
KILLS = [tuple(map(int, kill.split(":"))) for kill in os.environ.get("KILLS", "").split()]
EPOCHS = int(os.environ.get("TEST_EPOCHS", "3"))
WIDTHS = [int(width) for width in os.environ.get("TEST_WIDTHS", "256").split()]
ROUND = int(os.environ["TFRUN_ROUND"])


class Kill(keras.callbacks.Callback):
    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (ROUND, HERE.rank, self.epoch, batch) in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)


images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
keras.utils.set_random_seed(3)
with tfrun.strategy().scope():
    model = keras.Sequential(
        [
            keras.Input((64,)),
            *(keras.layers.Dense(width, activation="relu") for width in WIDTHS),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.002),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=int(os.environ.get("TEST_PER_EXECUTION", "1")),
    )
train = tfrun.Dataset.from_arrays((images[:1500], labels[:1500]), batch_size=100, seed=1)
model.fit(train, epochs=EPOCHS, callbacks=[Kill()], verbose=0)
loss, accuracy = model.evaluate(images[1500:], labels[1500:], verbose=0)
weights = [tf.convert_to_tensor(v).numpy() for v in model.weights + model.optimizer.variables]
group = host_collective.current()
found = {
    "weights": hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest(),
    "finite": all(bool(np.isfinite(w).all()) for w in weights),
    "loss": loss,
    "accuracy": accuracy,
    "compressed": group.counts.compressed if group else 0,
    "sums": group.counts.sums if group else 0,
    "sent": group.sent_bytes if group else 0,
}
Path(os.environ["TEST_FOLDER"], f"{HERE.rank}.json").write_text(json.dumps(found))
