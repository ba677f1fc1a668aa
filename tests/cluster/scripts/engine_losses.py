"""Losses as people write them; each case's numbers go to the test by its name.

The global batches are the same on any number of workers, the last one of an epoch is short, and
all is float64: what differs from one worker differs for a reason.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import tfrun

if os.environ.get("TEST_DEVICES"):
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tfrun.strategy("mirrored", devices=["CPU:0", "CPU:1"])
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.config.set_floatx("float64")
rng = np.random.RandomState(0)
X = rng.rand(22, 4)
Y = X.sum(axis=1, keepdims=True) * 2
WORDS = rng.randint(1, 9, (22, 6)) * (np.arange(6) < rng.randint(1, 7, (22, 1)))
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def fitted(make, data=(X, Y), *, evaluates=True, eager=False, **options):
    keras.utils.set_random_seed(7)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(8)
    with strategy.scope():
        model = make()
        model.compile(
            optimizer=options.pop("optimizer", lambda: keras.optimizers.SGD(0.05, momentum=0.5))(),
            run_eagerly=eager,
            **options,
        )
    history = model.fit(batches, epochs=2, verbose=0).history
    found = {"history": history, "weights": [v.numpy().tolist() for v in model.trainable_variables]}
    if evaluates:
        found["evaluated"] = model.evaluate(batches, verbose=0, return_dict=True)
    return found


def net(**options):
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, activation="tanh", **options),
            keras.layers.Dense(1),
        ]
    )


class Own(keras.Model):
    """A model of the script's own."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.net(x)

    @property
    def metrics(self):
        return [self.tracker]

    def build(self, shape):
        self.built = True


def stepping(loss_of, base=Own):
    """A model whose train_step and test_step have a loss of their own."""

    class Stepping(base):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = loss_of(self, x, y)
            weights = self.trainable_weights
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result(), "last": loss}

        def test_step(self, data):
            self.tracker.update_state(loss_of(self, *data))
            return {"loss": self.tracker.result()}

    return Stepping


def rows(model, x, y):
    return ops.sum(ops.square(model(x) - y), axis=-1)


STEPS = {
    "mean": lambda m, x, y: ops.mean(rows(m, x, y)),
    "sum": lambda m, x, y: tf.reduce_sum(rows(m, x, y)),
    "two_means": lambda m, x, y: ops.mean(rows(m, x, y)) + 0.1 * ops.mean(ops.sum(m(x) ** 2, 1)),
    "mean_of_a_mean": lambda m, x, y: ops.sum(ops.mean(ops.square(m(x) - y), axis=0)),
    "mean_and_sum": lambda m, x, y: ops.mean(rows(m, x, y)) - 0.01 * ops.sum(m(x)),
    "mean_and_weights": lambda m, x, y: (
        ops.mean(rows(m, x, y)) + 0.1 * ops.sum(ops.square(m.net.layers[0].kernel))
    ),
    "sum_and_weights": lambda m, x, y: (
        ops.sum(rows(m, x, y)) + 0.1 * ops.sum(ops.square(m.net.layers[0].kernel))
    ),
    "stacked": lambda m, x, y: ops.sum([ops.mean(rows(m, x, y)), ops.sum(m(x)) * 0.01]),
    "root": lambda m, x, y: ops.sqrt(ops.mean(rows(m, x, y))),
    "quotient": lambda m, x, y: ops.sum(rows(m, x, y)) / ops.sum(m(x) ** 2 + y),
    "masked": lambda m, x, y: (
        tf.reduce_sum(rows(m, x, y) * tf.cast(x[:, 0] > 0.5, x.dtype))
        / tf.reduce_sum(tf.cast(x[:, 0] > 0.5, x.dtype))
    ),
    "chosen": lambda m, x, y: tf.reduce_mean(tf.boolean_mask(rows(m, x, y), x[:, 0] > 0.5)),
    "by_batch": lambda m, x, y: tf.reduce_sum(rows(m, x, y)) / tf.cast(tf.shape(x)[0], x.dtype),
    "rows_by_batch": lambda m, x, y: tf.reduce_sum(
        rows(m, x, y) / tf.cast(tf.shape(x)[0], x.dtype)
    ),
    "keras": lambda m, x, y: keras.losses.MeanSquaredError()(y, m(x)),
    "keras_and_weights": lambda m, x, y: (
        keras.losses.MeanSquaredError()(y, m(x)) + 0.1 * ops.sum(ops.square(m.net.layers[0].kernel))
    ),
    "keras_sum": lambda m, x, y: keras.losses.MeanSquaredError(reduction="sum")(y, m(x)),
    "keras_none": lambda m, x, y: ops.mean(keras.losses.MeanSquaredError(reduction=None)(y, m(x))),
    "compute_loss": lambda m, x, y: m.compute_loss(x, y, m(x)),
    "average": lambda m, x, y: tf.nn.compute_average_loss(rows(m, x, y)),
    "stated": lambda m, x, y: tf.reduce_mean(rows(m, x, y)) / strategy.num_replicas_in_sync,
    "in_a_function": lambda m, x, y: tf.function(lambda a, b: tf.reduce_mean(rows(m, a, b)))(x, y),
    "logarithm": lambda m, x, y: tf.math.log(tf.reduce_sum(tf.exp(m(x)))) + ops.mean(rows(m, x, y)),
}
for name, loss_of in STEPS.items():
    CASES[f"step_{name}"] = lambda f=loss_of: fitted(stepping(f), loss="mse")
for name in ("mean", "sum", "mean_and_sum", "root", "masked", "keras_and_weights", "compute_loss"):
    CASES[f"eager_{name}"] = lambda f=STEPS[name]: fitted(stepping(f), loss="mse", eager=True)


@case
def eager_by_static_batch():
    def loss_of(m, x, y):
        return tf.reduce_sum(rows(m, x, y)) / x.shape[0]

    return fitted(stepping(loss_of), loss="mse", eager=True)


class Counting(Own):
    """Counts samples and steps by sizes that Python, Keras or TensorFlow tells."""

    def __init__(self):
        super().__init__()
        self.seen = [
            self.add_weight(shape=(), initializer="zeros", trainable=False) for _ in range(5)
        ]
        self.sums = [keras.metrics.Sum(name=f"sum_{i}") for i in range(4)]

    @property
    def metrics(self):
        return [self.tracker, *self.sums]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(rows(self, x, y)) / tf.cast(tf.shape(x)[0], x.dtype)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        read = x.shape[0] or tf.shape(x)[0]
        sizes = (tf.shape(x)[0], ops.shape(x)[0], read, tf.size(y), 1)
        for variable, size in zip(self.seen, sizes, strict=True):
            variable.assign_add(tf.cast(size, x.dtype))
        for metric, value in zip(self.sums, (loss, tf.shape(x)[0], read, 1), strict=True):
            metric.update_state(tf.cast(value, x.dtype))
        self.tracker.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


@case
def sizes_of_batches_of_one_size():
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = Counting()
        model.compile(keras.optimizers.SGD(0.05))
    history = model.fit(X[:16], Y[:16], batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return {"history": history, "weights": [v.numpy().tolist() for v in model.variables]}


@case
def step_that_is_a_function():
    class Model(stepping(STEPS["mean"])):
        @tf.function
        def train_step(self, data):
            return super().train_step(data)

    return fitted(Model, loss="mse")


@case
def step_with_a_penalty():
    class Penalised(Own):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    seen = self(x)
                slope = inner.gradient(seen, x)
                loss = tf.reduce_mean((seen - y) ** 2)
                loss += tf.reduce_mean((tf.norm(slope, axis=1) - 1.0) ** 2)
            weights = self.trainable_weights
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    return fitted(Penalised, loss="mse", evaluates=False)


@case
def step_within_the_tapes():
    class Two(Own):
        def train_step(self, data):
            x, y = data
            first, second = self.net.layers[0], self.net.layers[1]
            with tf.GradientTape() as one, tf.GradientTape(persistent=True) as two:
                loss = tf.reduce_mean((self(x) - y) ** 2)
                slopes = one.gradient(loss, first.trainable_weights)
                more = two.gradient(loss, second.trainable_weights)
            weights = [*first.trainable_weights, *second.trainable_weights]
            self.optimizer.apply([*slopes, *more], weights)
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    return fitted(Two, loss="mse", evaluates=False)


@case
def gan():
    class Gan(keras.Model):
        def __init__(self):
            super().__init__()
            self.g = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
            self.d = net()
            self.d_loss, self.g_loss = keras.metrics.Mean("d"), keras.metrics.Mean("g")
            self.built = True

        def compile(self, optimizer, **options):
            super().compile(optimizer=optimizer, **options)
            self.other = keras.optimizers.Adam(0.01)
            self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

        @property
        def metrics(self):
            return [self.d_loss, self.g_loss]

        def train_step(self, data):
            x, _ = data
            made = self.g(x[:, ::-1])
            both, size = ops.concatenate([made, x], axis=0), ops.shape(x)[0]
            labels = ops.concatenate([ops.ones((size, 1)), ops.zeros((size, 1))], axis=0)
            with tf.GradientTape() as tape:
                d_loss = self.loss_fn(labels, self.d(both))
            weights = self.d.trainable_weights
            self.optimizer.apply_gradients(
                zip(tape.gradient(d_loss, weights), weights, strict=True)
            )
            with tf.GradientTape() as tape:
                g_loss = tf.reduce_mean(tf.nn.softplus(self.d(self.g(x))))
            weights = self.g.trainable_weights
            self.other.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
            self.d_loss.update_state(d_loss)
            self.g_loss.update_state(g_loss)
            return {"d": self.d_loss.result(), "g": self.g_loss.result()}

    return fitted(Gan, evaluates=False)


@case
def overridden_compute_loss():
    class Model(Own):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = ops.mean(ops.square(y_pred - y)) + ops.sum(self.losses)
            self.tracker.update_state(loss)
            return loss

    def make():
        model = Model()
        model.net = net(kernel_regularizer="l2")
        return model

    return fitted(make, loss="mse")


@case
def super_compute_loss():
    class Model(Own):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = super().compute_loss(x, y, y_pred, sample_weight)
            self.tracker.update_state(loss)
            return loss + 0.01 * ops.sum(ops.square(y_pred))

    return fitted(Model, loss="mse")


class Endpoint(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.loss_fn = keras.losses.MeanSquaredError()
        self.seen = keras.metrics.Mean("seen")

    def call(self, y, p):
        loss = self.loss_fn(y, p)
        self.add_loss(loss)
        self.seen.update_state(loss)
        return p


@case
def endpoint():
    def make():
        x, y = keras.Input((4,)), keras.Input((1,))
        return keras.Model([x, y], Endpoint()(y, net()(x)))

    return fitted(make, (((X, Y),)))


def adding(function):
    class Adds(keras.layers.Layer):
        def call(self, x):
            self.add_loss(function(x))
            return x

    def make():
        inputs = keras.Input((4,))
        hidden = Adds()(keras.layers.Dense(3, kernel_regularizer="l2")(inputs))
        return keras.Model(inputs, keras.layers.Dense(1)(hidden))

    return make


ADDED = {
    "sum": lambda x: 0.01 * ops.sum(x),
    "mean": lambda x: ops.mean(x**2),
    "constant": lambda x: ops.convert_to_tensor(0.5, x.dtype),
    "root": lambda x: ops.sqrt(ops.mean(x**2)),
    "rows": lambda x: ops.sum(x**2, axis=-1) * 0.01,
}
for name, function in ADDED.items():
    CASES[f"add_loss_{name}"] = lambda f=function: fitted(adding(f), loss="mse")
CASES["add_loss_sum_eagerly"] = lambda: fitted(adding(ADDED["sum"]), loss="mse", eager=True)


@case
def regularized():
    return fitted(lambda: net(activity_regularizer="l2", kernel_regularizer="l1"), loss="mse")


def dice(y, p):
    p = ops.sigmoid(p)
    return 1 - (2 * ops.sum(y * p) + 1) / (ops.sum(y) + ops.sum(p) + 1)


class Entropy(keras.losses.Loss):
    """Keras's example "Semantic image clustering" replaces `__call__`."""

    def __call__(self, y, p, sample_weight=None):
        mean = tf.reduce_mean(tf.nn.softmax(tf.concat([p, y], axis=1)), axis=0)
        return tf.reduce_sum(mean * tf.math.log(mean))


class AndMore(keras.losses.MeanSquaredError):
    def __call__(self, y, p, sample_weight=None):
        return super().__call__(y, p, sample_weight) + 0.1 * ops.mean(ops.abs(p))


LOSSES = {
    "called": Entropy(),
    "called_super": AndMore(),
    "number": lambda y, p: tf.reduce_mean(tf.square(y - p)),
    "number_sum": lambda y, p: tf.reduce_sum(tf.square(y - p)),
    "dice": dice,
    "rows": lambda y, p: ops.sum(ops.square(y - p), axis=-1),
    "object_sum": keras.losses.MeanSquaredError(reduction="sum"),
    "object_none": keras.losses.MeanSquaredError(reduction=None),
    "object": keras.losses.MeanSquaredError(),
}
for name, function in LOSSES.items():
    CASES[f"loss_{name}"] = lambda f=function: fitted(net, loss=f)
CASES["loss_number_eagerly"] = lambda: fitted(net, loss=LOSSES["number"], eager=True)


def weighted(**options):
    weight = np.linspace(0.1, 2, 22)
    return fitted(net, (X, Y, weight), **options)


CASES["sample_weight"] = lambda: weighted(loss="mse", weighted_metrics=["mae"])
CASES["mean_with_sample_weight"] = lambda: weighted(
    loss=keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
)


def tagger():
    return keras.Sequential(
        [
            keras.layers.Embedding(9, 4, mask_zero=True),
            keras.layers.SimpleRNN(4, return_sequences=True, seed=1),
            keras.layers.Dense(9),
        ]
    )


def masked_loss(y, p):
    each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    mask = tf.cast(y != 0, each.dtype)
    return tf.reduce_sum(each * mask) / tf.reduce_sum(mask)


CASES["masked_sequences"] = lambda: fitted(
    tagger,
    (WORDS, WORDS),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
CASES["masked_loss_function"] = lambda: fitted(tagger, (WORDS, WORDS), loss=masked_loss)


@case
def several_outputs():
    def make():
        x = keras.Input((4,))
        hidden = keras.layers.Dense(3, activation="tanh")(x)
        one, two = keras.layers.Dense(1, name="one"), keras.layers.Dense(1, name="two")
        return keras.Model(x, {"one": one(hidden), "two": two(hidden)})

    return fitted(
        make,
        (X, {"one": Y, "two": Y**2}),
        loss={"one": "mse", "two": LOSSES["number"]},
        loss_weights={"one": 0.3, "two": 2.0},
    )


@case
def loss_scale():
    scaled = lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))  # noqa: E731
    return fitted(stepping(scaled_loss), loss="mse", optimizer=scaled, evaluates=False)


def scaled_loss(model, x, y):
    return model.optimizer.scale_loss(ops.mean(rows(model, x, y)))


@case
def accumulated():
    steps = lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)  # noqa: E731
    return fitted(stepping(STEPS["mean_and_sum"]), loss="mse", optimizer=steps)


results = {}
wanted = os.environ.get("TEST_CASES", "").split()
for name, function in CASES.items():
    if not wanted or name in wanted:
        try:
            results[name] = function()
        except Exception as error:
            if os.environ.get("TEST_RAISE"):
                raise
            results[name] = f"{type(error).__name__}: {error}"[-600:]
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))
