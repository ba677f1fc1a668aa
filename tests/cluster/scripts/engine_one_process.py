"""The strategies of one process on two logical CPU devices; results by name."""

from __future__ import annotations

import json
import os
import threading
import time
import traceback

import keras
import numpy as np
import tensorflow as tf

import tfrun

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
rng = np.random.RandomState(0)
X = rng.rand(53, 6).astype("float32")
Y = (X.sum(axis=1) * 2).astype("int32") % 3
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def trained(strategy, *, layers=(), optimizer=None, x=X, **compile_options):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input(x.shape[1:], dtype=x.dtype),
                *(make() for make in layers),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            optimizer=optimizer() if optimizer else keras.optimizers.SGD(0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compile_options,
        )
    history = model.fit(x, Y[: len(x)], batch_size=12, epochs=3, shuffle=False, verbose=0).history
    # Every replica's copy: a difference between them would be a difference of the numbers.
    copies = [
        [
            copy.numpy().astype("float64").tolist()
            for copy in strategy.experimental_local_results(v.value)
        ]
        for v in [*model.variables, *model.optimizer.variables]
    ]
    assert all(copy == replicas[0] for replicas in copies for copy in replicas), copies
    return {
        "history": history,
        "weights": [replicas[0] for replicas in copies],
        "predicted": model.predict(x, batch_size=12, verbose=0).tolist(),
    }


VARIANTS = {
    "plain": {},
    "clipped": {"optimizer": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05)},
    "accumulated": {
        "optimizer": lambda: keras.optimizers.Adam(
            0.01, gradient_accumulation_steps=2, clipnorm=0.1
        )
    },
    "moving average": {
        "optimizer": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=3)
    },
    "loss scale": {
        "optimizer": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    },
    "synchronized": {"layers": [lambda: keras.layers.BatchNormalization(synchronized=True)]},
    "steps": {"steps_per_execution": 2},
    "eager": {"run_eagerly": True},
    "embedding": {
        "layers": [lambda: keras.layers.Embedding(10, 4), keras.layers.Flatten],
        "x": (X * 10).astype("int32"),
    },
}


@case
def mirrored_is_one_device():
    one, two = tfrun.strategy("one_device"), tfrun.strategy("mirrored", devices=["CPU:0", "CPU:1"])
    return {
        name: {"one": trained(one, **variant), "two": trained(two, **variant)}
        for name, variant in VARIANTS.items()
    }


@case
def mirrored_batch_norm():
    two = tfrun.strategy("mirrored", devices=["CPU:0", "CPU:1"])
    trained(
        two, layers=[keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.3, seed=1)]
    )
    return {"replicas": two.num_replicas_in_sync}


@case
def central_storage():
    strategy = tfrun.strategy("central_storage", devices=["CPU:0", "CPU:1"])
    layers = [keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.3, seed=1)]
    state = trained(strategy, layers=layers)
    # Without a layer that draws or averages for each replica, the numbers are those of one.
    return {
        "replicas": strategy.num_replicas_in_sync,
        "finite": bool(np.isfinite(state["history"]["loss"]).all()),
        "central": trained(strategy, x=X[:48]),
        "one": trained(tfrun.strategy("one_device"), x=X[:48]),
    }


@case
def automatic():
    return {
        "alone": type(tfrun.strategy()).__name__,
        "devices": type(tfrun.strategy(devices=["CPU:0", "CPU:1"])).__name__,
    }


def code_of(make):
    try:
        make()
    except tfrun.TfrunError as error:
        return error.code
    return None


@case
def wrong_kinds():
    return {
        "unknown": code_of(lambda: tfrun.strategy("multi")),
        "no ps": code_of(lambda: tfrun.strategy("parameter_server")),
    }


@case
def no_tpu():
    before = threading.active_count()
    started = time.monotonic()
    code = code_of(lambda: tfrun.strategy("tpu"))
    return {
        "code": code,
        "seconds": time.monotonic() - started,
        "threads": threading.active_count() - before,
    }


def main() -> None:
    chosen = os.environ.get("TEST_CASES", "").split()
    results = {}
    for name, function in CASES.items():
        if chosen and name not in chosen:
            continue
        try:
            results[name] = function()
        except Exception:
            results[name] = {"error": traceback.format_exc()}
    with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
        json.dump(results, file)


main()
