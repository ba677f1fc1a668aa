"""Training steps that stand outside `strategy.run`; results by name."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job.errors import TfrunError

strategy = tfrun.strategy()
rng = np.random.RandomState(0)
X = rng.rand(8, 6).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def build(optimizer):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        return model, optimizer()


def outcome(act, inside):
    """The code and the text of a refusal, or what `act` gives."""
    with strategy.scope() if inside else contextlib.nullcontext():
        try:
            return act()
        except TfrunError as error:
            return [error.code, str(error)]


def stepping(optimizer, method, traced, built):
    model, optimizer = build(optimizer)
    if built:
        with strategy.scope():
            optimizer.build(model.trainable_variables)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(X) - Y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        if method == "apply":
            optimizer.apply(gradients, model.trainable_variables)
        else:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    run = tf.function(step) if traced else step

    def act():
        for _ in range(3):
            run()
        return [v.numpy().ravel().tolist() for v in model.variables]

    return act


def momentum():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def nested():
    strategy.run(lambda: strategy.run(lambda: tf.constant(1.0)))


def already_summed():
    model, optimizer = build(momentum)
    with strategy.scope():
        optimizer.build(model.trainable_variables)

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(X) - Y) ** 2) / strategy.num_replicas_in_sync
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def step():
        total = [strategy.reduce("SUM", g, axis=None) for g in strategy.run(gradients)]
        optimizer.apply_gradients(zip(total, model.trainable_variables, strict=True))

    for _ in range(3):
        step()
    return [v.numpy().ravel().tolist() for v in model.variables]


def main() -> None:
    results = {}
    for inside in (True, False):
        place = "inside" if inside else "outside"
        for name, options in {
            "eager": (momentum, "apply_gradients", False, False),
            "traced": (momentum, "apply", True, False),
            "built": (keras.optimizers.Adam, "apply", False, True),
            "without slots": (keras.optimizers.SGD, "apply_gradients", True, False),
        }.items():
            results[f"{name} {place}"] = outcome(stepping(*options), inside)
    results["nested"] = outcome(nested, False)
    results["already summed"] = outcome(already_summed, True)
    Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))


main()
