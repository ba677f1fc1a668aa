"""Layers that add noise to their samples, drawn in ways that know nothing of other workers."""

from __future__ import annotations

import random
import sys

import numpy as np
import tensorflow as tf

early = tf.random.Generator.from_seed(1)

import keras  # noqa: E402
from keras import layers  # noqa: E402

X = np.random.default_rng(0).normal(size=(22, 4))


class Noise(layers.Layer):
    def call(self, x, training=False):
        return x + self.noise(x, tf.shape(x)) if training else x


class Stateless(Noise):
    def noise(self, x, shape):
        return tf.random.stateless_normal(shape, seed=(1, 2))


class Number(Noise):
    def noise(self, x, shape):
        return keras.random.normal(shape, seed=42)


class Numpy(Noise):
    def noise(self, x, shape):
        drawn = tf.numpy_function(
            lambda sizes: np.random.normal(size=sizes).astype("float32"), [shape], "float32"
        )
        return tf.ensure_shape(drawn, x.shape)


class Python(Noise):
    def noise(self, x, shape):
        drawn = tf.py_function(
            lambda v: v * [[random.random()] for _ in range(len(v))], [x], "float32"
        )
        return tf.ensure_shape(drawn, x.shape)


class Generators(Noise):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(2)
        self.dropout = layers.Dropout(0.1, seed=3)

    def noise(self, x, shape):
        drawn = early.normal(shape) + keras.random.normal(shape, seed=self.seeds)
        seed = self.seeds.next()
        return self.dropout(drawn, training=True) + tf.random.stateless_normal(
            shape, tf.cast(seed, "int64")
        )


class ForAll(Noise):
    """One noise for all samples."""

    def noise(self, x, shape):
        return tf.random.stateless_normal((1, 4), seed=(1, 2)) + early.normal(())


class NumpyForAll(Noise):
    def noise(self, x, shape):
        return tf.ensure_shape(
            tf.numpy_function(lambda: np.float32(np.random.rand()), [], "float32"), ()
        )


class Unrandom(Noise):
    def noise(self, x, shape):
        drawn = tf.numpy_function(lambda sizes: np.ones(sizes, "float32"), [shape], "float32")
        return tf.ensure_shape(drawn, x.shape)


KINDS = (Stateless, Number, Numpy, Python, Generators, ForAll, NumpyForAll, Unrandom)
for kind in KINDS:
    print("CASE", kind.__name__, file=sys.stderr, flush=True)
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(4)(kind()(inputs)))
    model.compile("sgd", "mse")
    model.fit(X, X, batch_size=6, epochs=1, verbose=0)
print("CASE end", file=sys.stderr, flush=True)
