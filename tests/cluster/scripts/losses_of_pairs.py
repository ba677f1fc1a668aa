"""Losses that compare the samples of a batch with each other, and one that does not."""

from __future__ import annotations

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

X = np.random.default_rng(0).normal(size=(22, 4))


def orthogonal(x):
    """The regularizer of Keras's example "PointNet": of the whole batch, not of each sample."""
    x = ops.reshape(x, (-1, 2, 2))
    products = ops.reshape(ops.tensordot(x, x, axes=(2, 2)), (-1, 2, 2))
    return ops.sum(0.001 * ops.square(products - ops.eye(2)))


class Centered(layers.Layer):
    """Takes the mean of the batch from each sample, as the loss of Barlow Twins does."""

    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class Neighbours(layers.Layer):
    """Has samples look at each other, and at the one before."""

    def call(self, x):
        return x + ops.softmax(x @ ops.transpose(x)) @ x + 0.1 * ops.roll(x, 1, axis=0)


def partial_likelihood(y_true, y_pred):
    """Cox's, of survival times in order: each sample with all before it."""
    risks = ops.log(ops.cumsum(ops.exp(y_pred[:, 0])))
    return ops.mean(risks - y_pred[:, 0])


class Contrastive(keras.Model):
    """Compares the samples in a step of its own."""

    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            a, b = self(x), self(x[:, ::-1])
            similarities = ops.matmul(a, ops.transpose(b))
            loss = self.compute_loss(y=ops.arange(ops.shape(x)[0]), y_pred=similarities)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss}


def made(case):
    inputs = keras.Input((4,))
    if case == "regularizer":
        outputs = layers.Dense(4, activity_regularizer=orthogonal)(inputs)
        return keras.Model(inputs, outputs), "mse"
    if case == "contrastive":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return Contrastive(inputs, layers.Dense(3)(inputs)), loss
    if case == "centered":
        return keras.Model(inputs, layers.Dense(4)(Centered()(inputs))), "mse"
    if case == "in a layer":
        return keras.Model(inputs, layers.Dense(4)(Neighbours()(inputs))), "mse"
    if case == "in order":
        return keras.Model(inputs, layers.Dense(1)(inputs)), partial_likelihood
    normal = layers.BatchNormalization()(inputs)
    attended = layers.MultiHeadAttention(1, 2)(*[layers.Reshape((2, 2))(normal)] * 2)
    return keras.Model(inputs, layers.Flatten()(attended)), "mse"


for case in ("regularizer", "contrastive", "centered", "in a layer", "in order", "none"):
    print("CASE", case, file=sys.stderr, flush=True)
    model, loss = made(case)
    model.compile("sgd", loss)
    model.fit(X, X, batch_size=6, epochs=1, verbose=0)
print("CASE end", file=sys.stderr, flush=True)
