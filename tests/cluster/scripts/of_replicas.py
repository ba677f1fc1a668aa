"""Trains one small model after the other, and prints the bits of each: weights and metrics."""

import functools
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

here = tfrun.world()
DIES_AT = int(os.environ.get("DIES_AT", "0"))
DIES_AFTER = Path(os.environ.get("DIES_AFTER", "/"))  # what is to be there first


def samples(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def told(name, model, history, *more):
    bits = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
    numbers = {k: [float(value).hex() for value in v] for k, v in history.history.items()}
    if here.is_chief:
        print("BITS", name, hashlib.sha256(bits).hexdigest()[:16], numbers, *more, flush=True)


class Dies(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        Dies.steps += 1
        if here.round == 0 and here.rank == here.size - 1 and Dies.steps == DIES_AT:
            end = time.monotonic() + 30
            while not DIES_AFTER.exists() and time.monotonic() < end:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)


def cnn():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3, kernel_regularizer="l2"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    x, y = samples((100, 8, 8, 1)), np.arange(100) % 3
    weights = np.linspace(0.5, 1.5, 100).astype("float32")
    options = {"batch_size": 22, "epochs": 2, "validation_split": 0.2, "sample_weight": weights}
    history = model.fit(x, y, verbose=0, callbacks=[Dies()], **options)
    found = model.evaluate(x, y, batch_size=30, verbose=0, return_dict=True)
    told("cnn", model, history, {k: float(v).hex() for k, v in found.items()})
    assert model.predict(x[:7], verbose=0).shape == (7, 3)


def transformer():
    tokens = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(20, 8)(tokens)
    x = x + keras.layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x, use_causal_mask=True)
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model(tokens, keras.layers.Dense(20)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(0.01, clipnorm=1.0, use_ema=True), loss)
    x = np.random.default_rng(1).integers(0, 20, (45, 7))
    data = tf.data.Dataset.from_tensor_slices((x[:, :-1], x[:, 1:])).shuffle(45, seed=2).batch(10)
    told("transformer", model, model.fit(data, epochs=2, verbose=0))


class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        dense, dropout = keras.layers.Dense, keras.layers.Dropout
        norm = keras.layers.BatchNormalization
        self.maker = keras.Sequential([keras.Input((2,)), dense(8, "relu"), norm(), dense(4)])
        self.judge = keras.Sequential([keras.Input((4,)), dense(8, "relu"), dropout(0.2), dense(1)])
        self.seed = keras.random.SeedGenerator(7)
        self.means = [keras.metrics.Mean(name="judge"), keras.metrics.Mean(name="maker")]
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
        self.optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01)]

    @property
    def metrics(self):
        return self.means

    def train_step(self, real):
        count = tf.shape(real)[0]
        ones, zeros = tf.ones((count, 1)), tf.zeros((count, 1))
        with tf.GradientTape() as tape:
            made = self.maker(keras.random.normal((count, 2), seed=self.seed), training=True)
            judged = self.judge(tf.concat([real, made], 0), training=True)
            judge = self.loss_of(tf.concat([ones, zeros], 0), judged)
        weights = self.judge.trainable_weights
        self.optimizers[0].apply_gradients(zip(tape.gradient(judge, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            made = self.maker(keras.random.normal((count, 2), seed=self.seed), training=True)
            maker = self.loss_of(ones, self.judge(made, training=True))
        weights = self.maker.trainable_weights
        self.optimizers[1].apply_gradients(zip(tape.gradient(maker, weights), weights, strict=True))
        for mean, value in zip(self.means, (judge, maker), strict=True):
            mean.update_state(value)
        return {mean.name: mean.result() for mean in self.means}


def gan():
    model = Gan()
    model.compile()
    told("gan", model, model.fit(samples((50, 4)), batch_size=16, epochs=2, verbose=0))


def recommender():
    user, item = keras.Input((1,), dtype="int32"), keras.Input((1,), dtype="int32")
    towers = [keras.layers.Embedding(30, 4)(user), keras.layers.Embedding(40, 4)(item)]
    model = keras.Model([user, item], keras.layers.Flatten()(keras.layers.Dot(2)(towers)))
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=2)
    rng = np.random.default_rng(3)
    users, items = rng.integers(0, 30, (70, 1)), rng.integers(0, 40, (70, 1))
    data = tfrun.Dataset.from_arrays(((users, items), samples((70, 1))), batch_size=12, seed=4)
    told("recommender", model, model.fit(data, epochs=2, verbose=0))


def generator():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def batches():
        while True:
            for i in range(4):
                yield samples((9, 5), i), samples((9, 1), i + 10)

    told("generator", model, model.fit(batches(), steps_per_epoch=4, epochs=2, verbose=0))


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return samples((11, 5), i), samples((11, 1), i + 10)


def sequence():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    keras.config.set_dtype_policy("float32")
    model.compile("rmsprop", "mse")
    told("sequence", model, model.fit(Sequence(), epochs=2, verbose=0))


class Read(keras.callbacks.Callback):
    """What a callback reads of each batch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append({k: float(value).hex() for k, value in logs.items()})

    on_test_batch_end = on_train_batch_end


def logs():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy", "AUC"])
    x, read = samples((43, 5)), Read()
    y = (x.sum(1, keepdims=True) > 0).astype("float32")
    options = {"batch_size": 16, "verbose": 0, "callbacks": [read]}
    history = model.fit(x, y, validation_split=0.2, class_weight={0: 1.0, 1: 2.5}, **options)
    assert model.evaluate(x, y, **options)[0] == float.fromhex(read.found[-1]["loss"])
    told("logs", model, history, read.found)
    three = functools.partial(tfrun.strategy().reduce, "MEAN", tf.constant(3.0), axis=None)
    assert float(three()) == float(tf.function(three, autograph=False)()) == 3.0
    last = float.fromhex(read.found[2]["AUC"])
    assert abs(last - history.history["AUC"][0]) < 1e-6, "the epoch's are those of its last step"


class Own(keras.Model):
    """Its logs are no metrics."""

    def far(self, x, y, training):
        found = self(x, training=training)
        return found, tf.reduce_mean((found - y) ** 2)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            found, loss = self.far(x, y, training=True)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss, "far": tf.reduce_max(tf.abs(found - y))}

    def test_step(self, data):
        found, loss = self.far(*data, training=False)
        return {"loss": loss, "size": tf.norm(found)}


def own():
    inputs = keras.Input((5,))
    model = Own(inputs, keras.layers.Dense(1)(keras.layers.GaussianNoise(0.1, seed=5)(inputs)))
    model.compile(keras.optimizers.SGD(0.01, use_ema=True, ema_overwrite_frequency=2))
    x, y = samples((43, 5)), samples((43, 1), 3)
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_data=(x[:9], y[:9]))
    told("own", model, history, model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True))


class Exact(Own):
    """Its logs are no metrics, in float64: the mean of three equal ones is rounded."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            _, loss = self.far(x, y, training=True)
        gradients = tape.gradient(loss, self.trainable_weights)
        clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
        self.optimizer.apply(clipped, self.trainable_weights)
        return {"loss": loss, "norm": norm}


def exact():
    inputs = keras.Input((5,), dtype="float64")
    net = [keras.layers.Dense(n, "tanh", dtype="float64") for n in (3, 1)]
    model = Exact(inputs, net[1](net[0](inputs)))
    model.compile(keras.optimizers.SGD(0.1))
    x = samples((43, 5)).astype("float64")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(6)
    history = model.fit(data, epochs=8, validation_data=data.take(2), verbose=0)
    found = model.evaluate(data, return_dict=True, verbose=0)
    told("exact", model, history, {k: float(v).hex() for k, v in found.items()})


def scaled():
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    keras.config.set_dtype_policy("float32")
    inner = keras.optimizers.Adam(0.01, global_clipnorm=0.5)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=2)
    model.compile(optimizer, "mse")
    x, y = samples((60, 5)), samples((60, 1), 3)
    x[17] = 60000.0  # one replica's gradients overflow
    data = tf.data.Dataset.from_tensor_slices((x, y, np.linspace(0.5, 1.5, 60))).batch(14)
    history = model.fit(data, epochs=2, verbose=0, validation_data=data.take(2))
    told("scaled", model, history, float(optimizer.dynamic_scale), int(optimizer.iterations))


def two():
    inputs = keras.Input((5,))
    a, b = (keras.layers.Dense(1, name=name)(inputs) for name in "ab")
    model = keras.Model(inputs, {"a": a, "b": b})
    three = {"steps_per_execution": 3}
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=3, clipvalue=0.1)
    model.compile(optimizer, {"a": "mse", "b": "mae"}, metrics={"a": "mae"}, **three)
    data = samples((43, 5)), {"a": samples((43, 1), 3), "b": samples((43, 1), 4)}
    weights = {"a": np.linspace(0, 1, 43), "b": np.linspace(2, 1, 43)}
    history = model.fit(*data, batch_size=6, epochs=2, sample_weight=weights, verbose=0)
    found = model.evaluate(*data, batch_size=16, verbose=0, return_dict=True)
    told("two", model, history, {k: float(v).hex() for k, v in found.items()})


def accumulating():
    """An update every four steps of eleven in an epoch, the last one of which is short."""
    dense, dropout = keras.layers.Dense, keras.layers.Dropout
    norm = keras.layers.BatchNormalization()
    layers = [keras.Input((5,)), dense(16, "relu"), norm, dropout(0.2), dense(1)]
    model = keras.Sequential(layers)
    clipped = {"global_clipnorm": 0.5, "use_ema": True, "ema_overwrite_frequency": 8}
    model.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=4, **clipped), "mse")
    data = samples((125, 5)), samples((125, 1), 1)
    history = model.fit(*data, batch_size=12, epochs=3, verbose=0, callbacks=[Dies()])
    told("accumulating", model, history, hashlib.sha256(kept(model.optimizer)).hexdigest()[:16])


def kept(optimizer):
    return b"".join(np.asarray(variable).tobytes() for variable in optimizer.variables)


for name in sys.argv[1:]:
    keras.utils.set_random_seed(1)
    globals()[name]()
