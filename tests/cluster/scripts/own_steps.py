"""Models without `call` that have a `train_step` of their own: GANs, autoencoders; in float64."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

strategy = tfrun.strategy()
keras.config.set_floatx("float64")
rng = np.random.RandomState(0)
X = rng.rand(72, 6)
CASES = {}
keras.utils.set_random_seed(7)


def case(function):
    CASES[function.__name__] = function
    return function


def dense(*units, inputs=None):
    layers = [keras.layers.Dense(u, activation="tanh") for u in units]
    return keras.Sequential([*([keras.Input((inputs,))] if inputs else []), *layers])


def mse(y_true, y_pred):
    return tf.reduce_mean((y_true - y_pred) ** 2)


class Gan(keras.Model):
    """As https://keras.io/examples/generative/dcgan_overriding_train_step has it."""

    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_metric = keras.metrics.Mean(name="d_loss")
        self.g_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_metric, self.g_metric]

    def losses_of(self, real):
        each = tf.shape(real)[0]
        fake = self.generator(real[:, :3])
        d_real, d_fake = self.discriminator(real), self.discriminator(fake)
        ones, zeros = tf.ones((each, 1), d_real.dtype), tf.zeros((each, 1), d_real.dtype)
        d_loss = self.loss_fn(ones, d_real) + self.loss_fn(zeros, d_fake)
        return d_loss, self.loss_fn(ones, d_fake)

    def train_step(self, real):
        with tf.GradientTape() as tape:
            d_loss, _ = self.losses_of(real)
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            _, g_loss = self.losses_of(real)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_metric.update_state(d_loss)
        self.g_metric.update_state(g_loss)
        return {"d_loss": self.d_metric.result(), "g_loss": self.g_metric.result()}

    def test_step(self, real):
        d_loss, g_loss = self.losses_of(real)
        self.d_metric.update_state(d_loss)
        self.g_metric.update_state(g_loss)
        return {metric.name: metric.result() for metric in self.metrics}


class Autoencoder(keras.Model):
    """As https://keras.io/examples/generative/vae has it, but for the noise."""

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.total = keras.metrics.Mean(name="total")

    @property
    def metrics(self):
        return [self.total]

    def step(self, data):
        return mse(data, self.decoder(self.encoder(data)))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.step(data)
        grads = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        self.total.update_state(loss)
        return {"total": self.total.result()}

    def test_step(self, data):
        self.total.update_state(self.step(data))
        return {"total": self.total.result()}


class Dies(keras.callbacks.Callback):
    """Kills this worker once, in the second epoch, where DIE names a file to say so in."""

    def on_train_batch_end(self, batch, logs=None):
        told = Path(os.environ.get("DIE") or "/")
        if tfrun.world().rank == 1 and self.epoch == 1 and batch == 1 and not told.exists():
            told.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch


def numbers(model, fits=2):
    options = {"batch_size": 24, "epochs": 2, "shuffle": False, "verbose": 0}
    made = [model.fit(X, **options, callbacks=[Dies()]).history for _ in range(fits)]
    shown = model.evaluate(X, batch_size=24, verbose=0, return_dict=True)
    return [made, shown, [v.numpy().tolist() for v in model.variables]]


def gan(built):
    keras.utils.set_random_seed(7)
    sizes = {"inputs": 6} if built else {}
    discriminator = dense(5, 1, **sizes)
    sizes = {"inputs": 3} if built else {}
    model = Gan(discriminator, dense(4, 6, **sizes))
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, 0.9), mse)
    return model


def autoencoder(built):
    keras.utils.set_random_seed(7)
    sizes = ({"inputs": 6}, {"inputs": 2}) if built else ({}, {})
    model = Autoencoder(dense(4, 2, **sizes[0]), dense(4, 6, **sizes[1]))
    model.compile(keras.optimizers.Adam(0.01))
    return model


@case
def gan_of_built_parts():
    with strategy.scope():
        model = gan(True)
    return numbers(model)


@case
def gan_of_unbuilt_parts():
    with strategy.scope():
        model = gan(False)
    return numbers(model)


@case
def gan_outside_the_scope():
    model = gan(True)
    with strategy.scope():
        return numbers(model)


@case
def autoencoder_of_built_parts():
    with strategy.scope():
        model = autoencoder(True)
    return numbers(model)


@case
def autoencoder_of_unbuilt_parts():
    with strategy.scope():
        model = autoencoder(False)
    return numbers(model)


@case
def parts_begin_as_the_chiefs():
    with strategy.scope():
        model = autoencoder(False)
    keras.utils.set_random_seed(tfrun.world().rank)
    return {"same": numbers(model)}


@case
def evaluated_first():
    with strategy.scope():
        model = autoencoder(False)
    first = model.evaluate(X, batch_size=24, verbose=0)
    return [first, numbers(model, fits=1)]


def main() -> None:
    chosen = os.environ.get("TEST_CASES", "").split()
    results = {}
    for name, function in CASES.items():
        if not chosen or name in chosen:
            results[name] = function()
    if "TFRUN_TEST_OUT" in os.environ:
        Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))
    else:  # weights alone: at the end of each case
        digest = hashlib.sha256(json.dumps([r[-1] for r in results.values()]).encode())
        print("WEIGHTS", digest.hexdigest())


main()
