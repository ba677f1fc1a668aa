"""A BatchNorm of the script's own: keeps means and variances, and reads them in the same step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.config.set_floatx("float64")
X = np.random.default_rng(0).normal(size=(22, 4)) * 2 + 1
Y = X[:, :2] ** 2


class Norm(layers.Layer):
    """How it normalizes is each subclass's own."""

    def build(self, shape):
        options = {"shape": (shape[-1],), "trainable": False}
        self.mean = self.add_weight(initializer="zeros", name="mean", **options)
        self.variance = self.add_weight(initializer="ones", name="variance", **options)

    def call(self, x, training=False):
        return self.normal(x, x) if not training else self.trained(x)

    def normal(self, x, _):
        return (x - self.mean) / ops.sqrt(self.variance + 1e-3)

    def keep(self, mean, variance):
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        self.variance.assign(0.9 * self.variance + 0.1 * variance)

    def moved(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, axis=0))
        return x - self.mean


class Moving(Norm):
    def trained(self, x):
        return self.moved(x)


class Added(Norm):
    def trained(self, x):
        self.mean.assign_add(0.1 * (tf.reduce_mean(x, 0) - self.mean))
        return x - self.mean


class Moments(Norm):
    def trained(self, x):
        self.keep(*ops.moments(x, axes=[0]))
        return self.normal(x, None)


class Tensorflows(Norm):
    def trained(self, x):
        self.keep(*tf.nn.moments(x, [0]))
        return tf.nn.batch_normalization(x, self.mean, self.variance, None, None, 1e-3)


class ByHand(Norm):
    def trained(self, x):
        mean = ops.mean(x, axis=0)
        self.keep(mean, ops.sum(ops.square(x - mean), axis=0) / ops.cast(ops.shape(x)[0], x.dtype))
        return self.normal(x, None)


class Before(Norm):
    """Normalizes by what the steps before have kept, and is right without a sum of its own."""

    def trained(self, x):
        result = self.normal(x, None)
        self.keep(*ops.moments(x, axes=[0]))
        return result


class InFunction(Norm):
    trained = tf.function(Norm.moved)


class InCondition(Norm):
    def trained(self, x):
        return tf.cond(tf.reduce_sum(self.variance) > 0, lambda: self.moved(x), lambda: x)


class KeptInFunction(Norm):
    """Nobody reads what it keeps, so nothing is wrong."""

    @tf.function
    def trained(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, axis=0))
        return x


class Eagerly(Moments):
    pass


class KerasOwn(layers.Layer):
    """What Keras does itself is documented, and told nowhere."""

    def build(self, shape):
        self.norms = [layers.BatchNormalization(), layers.LayerNormalization()]
        self.attention = layers.MultiHeadAttention(1, 2)

    def call(self, x, training=False):
        for norm in self.norms:
            x = norm(x, training=training)
        rows = layers.Reshape((5, 1))(x)
        return ops.squeeze(self.attention(rows, rows), -1) + ops.softmax(x)


def numbers(cls):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(cls()(layers.Dense(5, activation="tanh")(inputs))))
    model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=cls is Eagerly)
    history = model.fit(X, Y, batch_size=6, epochs=2, shuffle=False, verbose=0).history
    return [history["loss"], [w.tolist() for w in model.get_weights()]]


EQUAL = (Moving, Added, Moments, Tensorflows, ByHand, Before, KeptInFunction)
chosen = os.environ.get("TEST_CASES", "").split()
results = {
    cls.__name__: numbers(cls)
    for cls in (*EQUAL, InFunction, InCondition, Eagerly, KerasOwn)
    if cls.__name__ in chosen or (not chosen and cls in EQUAL)
}
if "TFRUN_TEST_OUT" in os.environ:
    Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))
