"""A long training of a small model, whose workers are killed from outside.

PAUSE is how long each worker rests after a step, in seconds; EPOCHS are of 20 steps.
"""

import hashlib
import os
import time

import keras
import numpy as np

import tfrun

PAUSE, EPOCHS = float(os.environ.get("PAUSE", "0")), int(os.environ["EPOCHS"])
keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(240, 8)).astype("float32")
y = random.integers(0, 3, size=(240,))
with tfrun.strategy().scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])


class Rests(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(PAUSE)


rests = [Rests()] if PAUSE else []
history = model.fit(x, y, batch_size=12, epochs=EPOCHS, verbose=0, callbacks=rests)
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", hashlib.sha256(weights).hexdigest(), history.history["loss"][-3:], flush=True)
