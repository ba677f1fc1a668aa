"""`fit` of the seed CNN, 64 samples a worker; every worker writes down each step that it has done.

    recovery.py keras3|legacy EPOCHS

A line is "<seconds since the epoch> <optimizer's iterations>", in steps-<rank>-<pid>.txt of the
directory BENCH_STEPS. Legacy Keras keeps its state with BackupAndRestore, in BENCH_BACKUP.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

LEGACY, EPOCHS = sys.argv[1] == "legacy", int(sys.argv[2])
if LEGACY:
    import tf_keras as keras
else:
    import keras

SAMPLES, PER_WORKER = 6400, 64
strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(7)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
random = np.random.default_rng(0)
x = random.random((SAMPLES, 28, 28, 1), np.float32)
y = random.integers(0, 10, SAMPLES)
RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


class Steps(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        path = Path(os.environ["BENCH_STEPS"], f"steps-{RANK}-{os.getpid()}.txt")
        self.file = path.open("w", buffering=1)

    def on_train_batch_end(self, batch, logs=None):
        self.file.write(f"{time.time():.4f} {int(self.model.optimizer.iterations.numpy())}\n")


callbacks = [Steps()]
if LEGACY:
    callbacks.append(keras.callbacks.BackupAndRestore(os.environ["BENCH_BACKUP"]))
batch = PER_WORKER * strategy.num_replicas_in_sync
if LEGACY:
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES).batch(batch)
    model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks)
else:
    model.fit(x, y, batch_size=batch, epochs=EPOCHS, verbose=0, callbacks=callbacks)
