"""Things that a script makes outside the strategy's scope; results by name, in float64."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job.errors import TfrunError

KIND = os.environ.get("TEST_STRATEGY")
if KIND == "two":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tfrun.strategy("mirrored", devices=["CPU:0", "CPU:1"])
else:
    strategy = tfrun.strategy()
keras.config.set_floatx("float64")
rng = np.random.RandomState(0)
X = rng.rand(120, 6)
Y = (X.sum(axis=1, keepdims=True) + 0.3 * rng.randn(120, 1) > 3.6).astype("float64")
CASES = {}
RANK = int(os.environ.get("RANK", 0))


def case(function):
    CASES[function.__name__] = function
    return function


def layers(*more):
    keras.utils.set_random_seed(7)
    dense = keras.layers.Dense(4, activation="tanh")
    return [keras.Input((6,)), dense, *more, keras.layers.Dense(1, activation="sigmoid")]


def metrics():
    return [
        keras.metrics.BinaryCrossentropy(name="cross entropy"),
        keras.metrics.MeanSquaredError(name="Brier score"),
        keras.metrics.TruePositives(name="tp"),
        keras.metrics.FalsePositives(name="fp"),
        keras.metrics.BinaryAccuracy(name="accuracy"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.AUC(name="auc"),
        keras.metrics.AUC(name="prc", curve="PR"),
    ]


def fit(model, epochs=2, **more):
    history = model.fit(X, Y, batch_size=24, epochs=epochs, shuffle=False, verbose=0, **more)
    return {name: np.ravel(values).tolist() for name, values in history.history.items()}


def values(model):
    optimizer = model.optimizer.variables if model.optimizer else []
    return [v.numpy().astype("float64").tolist() for v in [*model.variables, *optimizer]]


def trained(model, **more):
    return [fit(model, **more), values(model), float(np.ravel(model.evaluate(X, Y, verbose=0))[0])]


@case
def metrics_above_the_scope():
    # https://www.tensorflow.org/tutorials/structured_data/imbalanced_data
    found = metrics()
    with strategy.scope():
        model = keras.Sequential(layers())
        model.compile(keras.optimizers.Adam(0.1), "binary_crossentropy", metrics=found)
    stop = keras.callbacks.EarlyStopping(
        monitor="val_prc", patience=2, mode="max", restore_best_weights=True
    )
    history = fit(model, epochs=12, validation_data=(X[60:100], Y[60:100]), callbacks=[stop])
    again = model.evaluate(X[:70], Y[:70], batch_size=30, verbose=0)
    return [history, values(model), stop.best_epoch, stop.stopped_epoch, again]


@case
def model_outside_compiled_inside():
    model = keras.Sequential(layers(keras.layers.Dropout(0.0)))
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.1, 0.9), "mse", metrics=["mae"])
    return trained(model)


@case
def model_inside_compiled_outside():
    with strategy.scope():
        model = keras.Sequential(layers())
    optimizer = keras.optimizers.Adam(0.05, use_ema=True, ema_overwrite_frequency=3)
    model.compile(optimizer, "mse", metrics=[*metrics(), "mae"])
    return trained(model)


@case
def all_outside_fit_inside():
    model = keras.Sequential(layers())
    model.compile("adam", "mse", metrics=["mae"])
    with strategy.scope():
        return trained(model)


@case
def only_the_optimizer_inside():
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.1, 0.9, gradient_accumulation_steps=2)
    model = keras.Sequential(layers())
    model.compile(optimizer, "mse", metrics=[keras.metrics.AUC(name="auc")])
    return trained(model)


@case
def loss_scaling_outside():
    model = keras.Sequential(layers())
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, 0.9))
    model.compile(optimizer, "mse")
    with strategy.scope():
        return trained(model)


@case
def loaded_and_cloned():
    with tempfile.TemporaryDirectory() as folder:
        model = keras.Sequential(layers())
        model.compile("adam", "mse", metrics=["mae"])
        model.fit(X, Y, batch_size=24, shuffle=False, verbose=0)  # it has slots
        model.save(Path(folder, "model.keras"))
        loaded = keras.models.load_model(Path(folder, "model.keras"))
    with strategy.scope():
        first = fit(loaded)
    cloned = keras.models.clone_model(loaded)
    cloned.set_weights(loaded.get_weights())
    with strategy.scope():
        cloned.compile("sgd", "mse")
    return [first, values(loaded), trained(cloned)]


@case
def used_before_it_is_adopted():
    # The functions that Keras traced then are gone, those of the script read the same weights.
    model = keras.Sequential(layers())
    model.compile(keras.optimizers.SGD(0.1, 0.9), "mse", metrics=["mae"])
    alone = fit(model)
    read = tf.function(lambda x: model(x))
    before = read(X).numpy()
    with strategy.scope():
        model.compile(model.optimizer, "mse", metrics=["mae"])
    together = trained(model)
    assert not np.allclose(before, read(X))
    np.testing.assert_allclose(read(X), model.predict(X, verbose=0), rtol=1e-9)
    return [alone, together]


@case
def a_base_and_preprocessing_outside():
    normalize = keras.layers.Normalization()
    normalize.adapt(X)
    keras.utils.set_random_seed(7)
    base = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5), keras.layers.Dense(5)])
    base.trainable = False
    with strategy.scope():
        noise = keras.layers.GaussianNoise(0.0)
        model = keras.Sequential([keras.Input((6,)), normalize, base, noise, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), "mse")
    first = fit(model)
    base.trainable = True  # fine-tuning, compiled outside
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=[keras.metrics.AUC(name="auc")])
    return [first, trained(model)]


class Weighted(keras.losses.Loss):
    def __init__(self):
        super().__init__()
        self.weight = keras.Variable(0.5, trainable=False, name="loss_weight")

    def call(self, y_true, y_pred):
        return self.weight * keras.ops.mean((y_true - y_pred) ** 2, axis=-1)


@case
def a_loss_with_state():
    loss = Weighted()
    with strategy.scope():
        model = keras.Sequential(layers())
        model.compile("sgd", loss)
    change = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: loss.weight.assign(1.0 + epoch)
    )
    result = trained(model, callbacks=[change])
    assert tf.distribute.OneDeviceStrategy is type(strategy) or isinstance(
        loss.weight._value, tf.distribute.DistributedValues
    )
    return result


def custom(metric, base=keras.Sequential):
    class Custom(base):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables, strict=True)
            )
            metric.update_state(y, self(x))
            return {metric.name: metric.result()}

        @property
        def metrics(self):
            return [metric]

    return Custom


@case
def metrics_of_a_train_step():
    # https://keras.io/guides/custom_train_step_in_tensorflow, its metrics at the script's top
    metric = keras.metrics.MeanAbsoluteError(name="mae")
    with strategy.scope():
        model = custom(metric)(layers())
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return [fit(model), values(model)]


@case
def on_batches():
    model = keras.Sequential(layers())
    with strategy.scope():
        model.compile("sgd", "mse", metrics=[keras.metrics.MeanAbsoluteError(name="mae")])
    size = 24 // strategy.num_replicas_in_sync  # each worker gives its own batch
    parts = [slice(24 * i + RANK * size, 24 * i + (RANK + 1) * size) for i in range(5)]
    logs = [model.train_on_batch(X[part], Y[part]) for part in parts]
    return [logs, values(model)]


def refused(act):
    try:
        act()
    except TfrunError as error:
        return [error.code, str(error)]
    return ["", ""]


@case
def a_metric_that_nobody_can_find():
    metric = keras.metrics.MeanAbsoluteError(name="hidden")

    class Hides(custom(metric)):
        metrics = keras.Sequential.metrics

    with strategy.scope():
        model = Hides(layers())
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return refused(lambda: model.fit(X, Y, batch_size=24, verbose=0))


def loop(make_inside, make_outside):
    """Runs a custom loop; gives what it refuses, or what it has trained."""
    made = make_outside()
    with strategy.scope():
        made = {**make_inside(), **made}
    model, optimizer, metric = made["model"], made["optimizer"], made["metric"]

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 24
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        metric.update_state(y, model(x))

    run = tf.function(lambda data: strategy.run(step, args=data))
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(24)

    def act():
        for batch in strategy.experimental_distribute_dataset(data):
            run(batch)

    return [*refused(act), [v.numpy().tolist() for v in model.variables], float(metric.result())]


PARTS = {
    "model": lambda: keras.Sequential(layers()),
    "optimizer": lambda: keras.optimizers.SGD(0.1, 0.9),
    "metric": lambda: keras.metrics.MeanAbsoluteError(name="mae"),
}


@case
def custom_loops():
    results = {}
    for outside in ("", *PARTS):
        inside = {name: make for name, make in PARTS.items() if name != outside}
        results[outside] = loop(
            lambda inside=inside: {name: make() for name, make in inside.items()},
            lambda outside=outside: {outside: PARTS[outside]()} if outside else {},
        )
    return results


@case
def two_strategies():
    with strategy.scope():
        model = keras.Sequential(layers())
    other = tf.distribute.OneDeviceStrategy("CPU:0")
    with other.scope():
        return refused(lambda: model.compile("sgd", "mse"))


def main() -> None:
    chosen = os.environ.get("TEST_CASES", "").split()
    results = {}
    for name, function in CASES.items():
        if not chosen or name in chosen:
            results[name] = function()
    Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))


main()
