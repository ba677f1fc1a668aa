"""A training in which one worker dies, and another waits then until a successor is ready.

in_place.py VICTIM STEP [begins] [own] [large]: the rank that dies, after so many steps, or where
the next one begins; -1 for nobody. With "own" the step is the script's, its metrics come after its
update, and the successor comes in the midst of an epoch. A "large" model's gradients are summed in
several packs where that is done while others are computed.
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

EPOCHS, WAITS_AT, SECONDS = 20, 12, 120
victim, step = map(int, sys.argv[1:3])
at_begin, own, large = (word in sys.argv for word in ("begins", "own", "large"))
began, begun = tfrun.world(), []
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
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(targets, found)
        return {metric.name: metric.result() for metric in self.metrics}


model = (OwnStep if own else keras.Sequential)(
    [
        keras.Input((8,)),
        keras.layers.Dense(16, activation="relu"),
        *[keras.layers.Dense(1024) for _ in range(2 * large)],
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(3),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])


class Dies(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.made = 0

    def on_train_begin(self, logs=None):
        begun.append(began.rank)  # a callback gets back what it has remembered

    def die_if_wanted(self):
        if self.made == step and began.rank == victim and began.round == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_begin(self, batch, logs=None):
        if at_begin:
            self.die_if_wanted()

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.made += 1
        if not at_begin:
            self.die_if_wanted()
        if own and batch == 1:
            self.wait_for_successor()

    def on_epoch_end(self, epoch, logs=None):
        if not own:
            self.wait_for_successor()

    def wait_for_successor(self):
        if victim >= 0 and self.epoch == WAITS_AT:
            events, until = Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl"), time.monotonic()
            while '"state": "ready"' not in events.read_text():
                assert time.monotonic() < until + SECONDS, "no successor"
                time.sleep(0.02)


history = model.fit(
    x, y, batch_size=24, epochs=EPOCHS, validation_data=(x[:30], y[:30]), verbose=0,
    callbacks=[Dies()],
)  # fmt: skip
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", hashlib.sha256(weights).hexdigest(), sorted(history.history.items()), flush=True)
print("BEGUN", len(begun), flush=True)
