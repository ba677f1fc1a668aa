"""What random numbers each replica draws in a step, and what the states are afterwards."""

from __future__ import annotations

import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
WORKERS = strategy.num_replicas_in_sync
X = np.ones((48, 4), "float32")
seen: dict = {"drawn": {}}
early = tf.random.Generator.from_seed(8)  # outside of the scope


class Noisy(keras.Model):
    """Gives its training step's random numbers as logs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.dropout = keras.layers.Dropout(0.5, seed=3)
        self.flip = keras.layers.RandomFlip(seed=4)
        self.own = keras.random.SeedGenerator(5)
        self.late = tf.random.Generator.from_seed(9)

    def call(self, x, training=False):
        return self.dense(self.dropout(x, training=training))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data, training=True) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        ones = tf.ones([40])
        branch = tf.cond(
            loss > -1.0, lambda: self.dropout(ones, training=True), lambda: tf.zeros([40])
        )
        drawn = {
            "a generator by the batch": early.normal([tf.shape(data)[0], 2]),
            "a generator": early.normal([8]),
            "a generator in the scope": self.late.uniform([8]),
            "one of a generator": early.normal(()),
            "dropout": self.dropout(ones, training=True),
            "in a condition": branch,
            "keras.random with a generator": keras.random.normal([8], seed=self.own),
            "keras.random": keras.random.uniform([8]),
            "keras.random with a number": keras.random.normal([8], seed=42),
            "tf.random": tf.random.normal([8]),
            "tf.random with a seed": tf.random.uniform([8], seed=6),
            "tf.random.stateless": tf.random.stateless_normal([8], seed=(1, 2)),
            "one of keras.random": keras.random.uniform((), seed=self.own),
            "one of keras.random.gamma": keras.random.gamma((1,), 2.0),
            "one of tf.random": tf.random.uniform(()),
            "one of tf.random.normal": tf.random.normal(shape=[1, 1]),
            # One at a time: else TensorFlow's own threads decide whose number comes first.
            "in a loop": tf.map_fn(
                lambda _: tf.random.uniform(()), tf.zeros([8]), parallel_iterations=1
            ),
            "augmented": self.flip(tf.random.stateless_normal([4, 6, 6, 3], (1, 1)), training=True),
        }
        for name, values in drawn.items():
            tf.numpy_function(_remember(name), [values], [])
        return {"loss": loss}


def _remember(name):
    def remember(values):
        seen["drawn"].setdefault(name, []).append(values.tolist())

    return remember


keras.utils.set_random_seed(7)
with strategy.scope():
    model = Noisy()
    model.compile(optimizer=keras.optimizers.SGD(0.1))
model.fit(X, batch_size=12, epochs=1, verbose=0)
seen["states"] = [
    [v.numpy().tolist() for v in generator.state.value.values]
    for generator in (model.dropout.seed_generator, model.own, model.flip.generator)
]
seen["generators"] = [each.state.numpy().tolist() for each in (early, model.late)]
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(seen))
