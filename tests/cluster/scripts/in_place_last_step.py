"""A step of the script's own is all of an epoch; after some of them a successor comes.

in_place_last_step.py lives|dies|ends local|global: whether a worker dies, where an epoch begins, or
in its last step; whose logs a step has.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job.settings import settings

DIES_AT, WAITS_AT, SECONDS = 3, 5, 120
when, folder = sys.argv[1], Path(os.environ["TFRUN_RUN_DIR"])
rank = tfrun.world().rank
keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(96, 8)).astype("float32")
y = random.integers(0, 3, size=(96,))


class OwnStep(keras.Sequential):
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            found = self(inputs, training=True)
            loss = self.compute_loss(x=inputs, y=targets, y_pred=found)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        logs = self.compute_metrics(inputs, targets, found)
        return {"a size": tf.reduce_mean(tf.abs(found)), "of all": logs}

    def get_metrics_result(self):
        if not tf.inside_function():
            dying.end_epoch()
        return super().get_metrics_result()


class Dies(keras.callbacks.Callback):
    epoch = -1

    def die(self, epoch):
        died = folder / "died"
        if epoch == DIES_AT and rank == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch, logs=None):
        if epoch == DIES_AT and not settings().rehearses:
            (folder / f"logs of {os.getpid()}").write_text(str(sorted(logs.items())))

    def end_epoch(self):
        """Dies when all have made the step."""
        if when != "ends" or settings().rehearses or self.epoch != DIES_AT:
            return
        (folder / f"{rank} is done").touch()
        until = time.monotonic() + SECONDS
        while rank == 1 and len([*folder.glob("* is done")]) < tfrun.world().size:
            assert time.monotonic() < until
            time.sleep(0.02)
        self.die(self.epoch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if when == "lives" or settings().rehearses:
            return
        if when == "dies":
            self.die(epoch)
        until = time.monotonic() + SECONDS
        while epoch == WAITS_AT and '"ready"' not in (folder / "events.jsonl").read_text():
            assert time.monotonic() < until, "no successor"
            time.sleep(0.02)


class Looks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        assert logs["a size"] > 0


layers = keras.layers
model = OwnStep([keras.Input((8,)), layers.Dense(16, "relu"), layers.Dropout(0.5), layers.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
dying = Dies()
callbacks = [dying, *([Looks()] if sys.argv[2] == "global" else [])]
history = model.fit(
    x, y, batch_size=96, epochs=20, validation_data=(x[:30], y[:30]), verbose=0, callbacks=callbacks
)
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", hashlib.sha256(weights).hexdigest(), sorted(history.history.items()), flush=True)
