"""Trains a convolution on labels of chance; each worker prints what its weights are at the end."""

import hashlib
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

STEPS = int(os.environ.get("STEPS", "20"))


class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        mark = os.environ.get("DIES_ONCE")
        if not mark or os.environ["RANK"] != "1" or self.model.optimizer.iterations < STEPS // 2:
            return
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


layers = keras.layers
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu")])
model.add(layers.Conv2D(64, 3, strides=2, activation="relu"))
model.add(layers.Flatten())
model.add(layers.Dense(10))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, jit_compile=os.environ.get("XLA") == "1")
numbers = np.random.default_rng(0)
x, y = numbers.random((64 * STEPS, 32, 32, 3), np.float32), numbers.integers(0, 10, 64 * STEPS)
model.fit(x, y, batch_size=64, epochs=2, shuffle=False, verbose=0, callbacks=[Dies()])
held = tf.config.experimental.get_memory_info("GPU:0")["current"]
bits = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
on_gpu = all("GPU" in v.value.device for v in model.trainable_variables)
print(f"ENDS {bits} on GPU {on_gpu and held > 0} {Path.cwd()}")
