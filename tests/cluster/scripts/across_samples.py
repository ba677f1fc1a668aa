"""Predicts and evaluates with layers whose results depend on the batch, and with such that do not.

Prints what comes out, with names; names no strategy.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

ROWS, BATCH = 70, 16


class Moving(layers.Layer):
    """Moves its mean with each batch, and reads it."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, axis=0))
        return x - self.mean


class Counting(layers.Layer):
    """Counts samples, or batches, and multiplies by their number."""

    def __init__(self, samples):
        super().__init__()
        self.samples = samples

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.count.assign_add(ops.cast(ops.shape(x)[0], "float32") if self.samples else 1.0)
        return x * self.count


class Centred(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0)


class OfTheLargest(layers.Layer):
    def call(self, x):
        return x / ops.max(ops.abs(x))


class InACondition(layers.Layer):
    def call(self, x):
        return tf.cond(tf.reduce_all(x > -99.0), lambda: x - tf.reduce_mean(x, 0), lambda: x)


class Between(layers.Layer):
    def call(self, x):
        return ops.matmul(ops.softmax(ops.matmul(x, ops.transpose(x))), x)


class Normalized(layers.Layer):
    def __init__(self):
        super().__init__()
        self.norm = layers.BatchNormalization()

    def call(self, x):
        return self.norm(x, training=True)


class PerSample(layers.Layer):
    """Everything within a sample: means, the largest, a softmax, a product, shapes."""

    def call(self, x):
        x = (x - ops.mean(x, axis=-1, keepdims=True)) / ops.max(ops.abs(x), axis=1, keepdims=True)
        pieces = ops.reshape(x, (ops.shape(x)[0], 2, -1))
        weights = ops.softmax(ops.matmul(pieces, ops.transpose(pieces, (0, 2, 1))))
        return ops.reshape(ops.matmul(weights, pieces), (-1, 8))


def sequential(*middle):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8), *middle, layers.Dense(1)])


def of_words():
    words = keras.Input((5,), dtype="int32")
    x = layers.Embedding(20, 8, mask_zero=True)(words)
    x = layers.Bidirectional(layers.GRU(4, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization()(layers.LSTM(4)(x))
    return keras.Model(words, layers.Dense(1)(x))


def of_images():
    image = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same")(image)
    x = layers.BatchNormalization()(x)
    x = layers.GroupNormalization(2)(layers.Activation("relu")(x))
    x = layers.SeparableConv2D(4, 3)(layers.UpSampling2D()(layers.MaxPooling2D()(x)))
    x = layers.Dropout(0.5)(layers.UnitNormalization()(layers.GlobalAveragePooling2D()(x)))
    return keras.Model(image, layers.Dense(1, activity_regularizer="l2")(x))


ACROSS = {
    "moving": lambda: sequential(Moving()),
    "samples": lambda: sequential(Counting(samples=True)),
    "centred": lambda: sequential(Centred()),
    "largest": lambda: sequential(OfTheLargest()),
    "condition": lambda: sequential(InACondition()),
    "between": lambda: sequential(Between()),
    "normalized": lambda: sequential(Normalized()),
}
APART = {
    "batches": lambda: sequential(Counting(samples=False)),
    "per sample": lambda: sequential(PerSample()),
    "words": of_words,
    "images": of_images,
}


def data_of(model):
    generator = np.random.default_rng(0)
    shape = model.input_shape[1:]
    if model.inputs[0].dtype == "int32":
        return generator.integers(0, 20, (ROWS, *shape))
    return generator.normal(1, 1, (ROWS, *shape)).astype("float32")


def show(kind, name, *values):
    print("RES", kind.replace(" ", "_"), name, *(f"{float(value):.9g}" for value in values))


def show_predicted(kind, name, found):
    show(kind, name, len(found), found.mean(), (found * np.arange(len(found))[:, None]).mean())


for kind, make in {**ACROSS, **APART}.items():
    keras.utils.set_random_seed(1)
    model = make()
    mean = keras.metrics.MeanAbsoluteError(name="mae")
    model.compile("sgd", "mse", weighted_metrics=[mean, keras.metrics.R2Score(name="r2")])
    x = data_of(model)
    y = (x.reshape(ROWS, -1)[:, :1] * 0.1).astype("float32")
    pipeline = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    show_predicted(kind, "predict", model.predict(x, batch_size=BATCH, verbose=0))
    show(kind, "evaluate", *model.evaluate(x, y, batch_size=BATCH, verbose=0))
    show(kind, "read", mean.result())
    show_predicted(kind, "pipeline", model.predict(pipeline, verbose=0))
    show(kind, "again", *model.evaluate(pipeline, verbose=0))
    show(kind, "weights", sum(np.abs(weight).sum() for weight in model.get_weights()))
    if kind == "moving":
        model.fit(x, y, batch_size=BATCH, validation_data=(x, y), verbose=0)
    if kind == "centred":
        model = sequential(Centred())
        model.predict(((x[i : i + BATCH],) for i in range(0, 64, BATCH)), verbose=0)
