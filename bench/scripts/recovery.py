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

import cnn
import tensorflow as tf

LEGACY, EPOCHS = sys.argv[1] == "legacy", int(sys.argv[2])
if LEGACY:
    import tf_keras as keras
else:
    import keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(7)
with strategy.scope():
    model = cnn.compiled(keras)
x, y = cnn.samples()
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
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
if LEGACY:
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(cnn.SAMPLES).batch(batch)
    model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks)
else:
    model.fit(x, y, batch_size=batch, epochs=EPOCHS, verbose=0, callbacks=callbacks)
