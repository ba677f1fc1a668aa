"""`fit` of one of some models; every worker writes down each step that it has done, and its round.

    in_place.py tiny|cnn|resnet50|transformer EPOCHS SECONDS

SECONDS is what the script takes at its top. A line is "<seconds since the epoch> <optimizer's
iterations> <round>", in steps-<pid>.txt of the directory BENCH_STEPS.
"""

import os
import sys
import time
from pathlib import Path

import cnn
import keras
import numpy as np

import tfrun

NAME, EPOCHS, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
STEPS, LAYERS, WIDTH, HEADS, WORDS, LENGTH = 50, 6, 128, 4, 256, 64
BATCH = {"tiny": 64, "cnn": 2 * cnn.PER_WORKER, "resnet50": 8, "transformer": 16}[NAME]
time.sleep(SECONDS)
keras.utils.set_random_seed(7)
layers, random = keras.layers, np.random.default_rng(0)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def samples(shape: tuple[int, ...]) -> np.ndarray:
    return random.random((STEPS * BATCH, *shape), np.float32)


def transformer() -> keras.Model:
    words = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH)(words)
    for _ in range(LAYERS):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)(y, y)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="relu")(y))
    return keras.Model(words, layers.Dense(WORDS)(x))


labels = random.integers(0, 10, STEPS * BATCH)
if NAME == "tiny":
    x = samples((8,))
    model = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(10)])
elif NAME == "cnn":
    x, labels = cnn.samples()
    model = cnn.compiled(keras)
elif NAME == "resnet50":
    x = samples((96, 96, 3))
    model = keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3), classes=10)
    loss = keras.losses.SparseCategoricalCrossentropy()
else:
    x = random.integers(0, WORDS, (STEPS * BATCH, LENGTH)).astype(np.int32)
    labels, model = x, transformer()
if NAME != "cnn":
    model.compile(keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        path = Path(os.environ["BENCH_STEPS"], f"steps-{os.getpid()}.txt")
        self.file = path.open("a", buffering=1)

    def on_train_batch_end(self, batch, logs=None):
        done, number = int(self.model.optimizer.iterations.numpy()), tfrun.world().round
        self.file.write(f"{time.time():.4f} {done} {number}\n")


model.fit(x, labels, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Steps()])
