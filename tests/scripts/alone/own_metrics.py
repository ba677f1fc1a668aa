# after: metrics of people's own: the F1 and the spread of each batch, a running variance, R2
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import ops

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
x = rng.normal(size=(22, 4))
y = (x[:, :1] + rng.normal(size=(22, 1)) > 0).astype("float64")


class BatchF1(keras.metrics.Metric):
    def __init__(self, name="batch_f1"):
        super().__init__(name=name)
        self.f1 = self.add_weight(name="f1", initializer="zeros")
        self.batches = self.add_weight(name="batches", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        said = ops.cast(y_pred > 0.5, y_pred.dtype)
        hits = ops.sum(said * ops.cast(y_true, said.dtype))
        precision = hits / (ops.sum(said) + 1e-7)
        recall = hits / (ops.sum(ops.cast(y_true, said.dtype)) + 1e-7)
        self.f1.assign_add(2 * precision * recall / (precision + recall + 1e-7))
        self.batches.assign_add(1.0)

    def result(self):
        return self.f1 / self.batches


class Batches(keras.metrics.Metric):
    def __init__(self, name="batches"):
        super().__init__(name=name)
        self.count = self.add_weight(name="count", initializer="zeros", dtype="int32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(1)

    def result(self):
        return ops.cast(self.count, "float64")


class MeanError(keras.metrics.Metric):
    """Of batches, and of the last one alone, and a moving average."""

    def __init__(self, name="mean_error"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")
        self.last = self.add_weight(name="last", initializer="zeros")
        self.average = self.add_weight(name="average", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        error = ops.mean(ops.abs(y_true - y_pred))
        self.total.assign_add(error)
        self.count.assign_add(1.0)
        self.last.assign(error)
        self.average.assign(0.9 * self.average + 0.1 * error)

    def result(self):
        return self.total / self.count + self.last + self.average


class Variance(keras.metrics.Metric):
    """Of the predictions, as Welford computes it: no sum of the samples is ever kept."""

    def __init__(self, name="variance"):
        super().__init__(name=name)
        self.count = self.add_weight(name="count", initializer="zeros")
        self.mean = self.add_weight(name="mean", initializer="zeros")
        self.squares = self.add_weight(name="squares", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        count, mean = ops.cast(ops.size(y_pred), y_pred.dtype), ops.mean(y_pred)
        spread = ops.sum(ops.square(y_pred)) - count * mean**2
        total, step = self.count + count, mean - self.mean
        self.squares.assign(self.squares + spread + step**2 * self.count * count / total)
        self.mean.assign(self.mean + step * count / total)
        self.count.assign(total)

    def result(self):
        return self.squares / self.count


class Spread(keras.metrics.Metric):
    def __init__(self, name="spread"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.batches = self.add_weight(name="batches", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(ops.var(y_pred))
        self.batches.assign_add(1.0)

    def result(self):
        return self.total / self.batches


def deviation(y_true, y_pred):
    return ops.std(y_pred)


def r2(y_true, y_pred):
    left = ops.sum(ops.square(y_true - y_pred))
    return 1 - left / (ops.sum(ops.square(y_true - ops.mean(y_true, axis=0))) + 0.1)


class Logs(keras.Model):
    """Logs a spread by a metric, and as a number of the last batch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.spread = keras.metrics.Mean(name="logged_spread")

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = self.compute_loss(inputs, targets, outputs)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.spread.update_state(ops.var(outputs))
        return {"loss": loss, "spread": self.spread.result(), "raw": ops.std(outputs)}


model = keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.Dense(1, "sigmoid")])
model.compile(
    keras.optimizers.SGD(0.5),
    "binary_crossentropy",
    metrics=[BatchF1(), Batches(), MeanError(), Variance(), Spread(), deviation, r2],
)
history = model.fit(
    x, y, batch_size=6, epochs=3, shuffle=False, verbose=0, validation_data=(x[:7], y[:7])
)
for name, values in history.history.items():
    print(f"{name} = {values[-1]:.12f}")
for name, value in model.evaluate(x[5:], y[5:], 6, verbose=0, return_dict=True).items():
    print(f"evaluated {name} = {value:.12f}")

# Batches of one size: what a metric counts by is a constant then, as what it adds for each batch.
whole = tf.data.Dataset.from_tensor_slices((x, y)).batch(6, drop_remainder=True)
for compiled in (False, True):
    model.compile(
        keras.optimizers.SGD(0.5),
        "binary_crossentropy",
        metrics=[BatchF1(), Batches(), MeanError(), Variance()],
        jit_compile=compiled,
    )
    history = model.fit(whole, epochs=2, verbose=0, validation_data=whole)
    for name, values in history.history.items():
        print(f"one size, {compiled}, {name} = {values[-1]:.12f}")

inputs = keras.Input((4,))
logs = Logs(inputs, keras.layers.Dense(1, "sigmoid")(inputs))
logs.compile(keras.optimizers.SGD(0.5), "binary_crossentropy")
history = logs.fit(x, y, batch_size=6, epochs=2, shuffle=False, verbose=0)
for name, values in history.history.items():
    print(f"logged {name} = {values[-1]:.12f}")
