"""`fit` of one of some models; every worker writes down each step that it has done, and its round.

    in_place.py tiny|cnn|resnet50|transformer[-loop] EPOCHS SECONDS

With "-loop" it is a loop over `TrainState.steps` instead.
SECONDS is what the script takes at its top. A line is "<seconds since the epoch> <optimizer's
iterations> <round>", in steps-<pid>.txt of the directory BENCH_STEPS.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import cnn
import keras
import numpy as np
import tensorflow as tf

import tfrun

NAME, _, LOOP = sys.argv[1].partition("-")
EPOCHS, SECONDS = int(sys.argv[2]), float(sys.argv[3])
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


strategy = tfrun.strategy() if LOOP else None
making = contextlib.ExitStack()
if strategy:
    making.enter_context(strategy.scope())
labels = random.integers(0, 10, STEPS * BATCH)
if NAME == "tiny":
    x = samples((8,))
    dense = [layers.Dense(16, activation="relu"), layers.Dense(10)]
    model = keras.Sequential([keras.Input((8,)), *dense])
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


making.close()
file = Path(os.environ["BENCH_STEPS"], f"steps-{os.getpid()}.txt").open("a", buffering=1)  # noqa: SIM115


def write_down():
    done, number = int(model.optimizer.iterations.numpy()), tfrun.world().round
    file.write(f"{time.time():.4f} {done} {number}\n")


class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        write_down()


@tf.function
def train_step(batch):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            found = loss(y, model(x, training=True)) / strategy.num_replicas_in_sync
        gradients = tape.gradient(found, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    strategy.run(on_replica, batch)


if strategy:
    data = tfrun.Dataset.from_arrays((x, labels), batch_size=BATCH)
    state = tfrun.TrainState(model=model, optimizer=model.optimizer)
    for batch in state.steps(data, epochs=EPOCHS):
        train_step(batch)
        write_down()
else:
    model.fit(x, labels, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Steps()])
