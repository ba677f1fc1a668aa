"""Fifty steps with each optimizer; every variable is looked at after every step."""

from __future__ import annotations

import json
import os

import keras
import numpy as np
import tensorflow as tf

from tfrun.engine.sync_check import check_in_sync

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rng = np.random.RandomState(0)
X = rng.rand(115, 8, 8, 1).astype("float32")  # batches of 24: the last one has 19 samples
Y = (X.mean(axis=(1, 2, 3)) * 20).astype("int32") % 4
EPOCHS = 10

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.003),
}


class Watch(keras.callbacks.Callback):
    """Bit-identical variables after every step, and the same metrics read on every worker.

    A metric's variables hold each worker's own part of the data, by design; what must be the
    same everywhere is their sum, which reading them gives.
    """

    def __init__(self):
        super().__init__()
        self.steps, self.metrics = 0, []

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        variables = [*self.model.variables, *self.model.optimizer.variables]
        check_in_sync([(v.path, v) for v in variables])
        if batch % 2:
            return
        values = self.model.get_metrics_result()
        self.metrics.append({name: float(value) for name, value in values.items()})


def train(optimizer, *layers):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(4, 3, activation="relu"),
                *(make() for make in layers),
                keras.layers.Flatten(),
                keras.layers.Dense(4),
            ]
        )
        model.compile(
            optimizer=optimizer(),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")],
        )
    watch = Watch()
    options = {"batch_size": 24, "epochs": EPOCHS, "shuffle": False, "verbose": 0}
    history = model.fit(X, Y, callbacks=[watch], **options).history
    whole = model.evaluate(X, Y, batch_size=115, verbose=0, return_dict=True)
    pieces = model.evaluate(X, Y, batch_size=24, verbose=0, return_dict=True)
    return {
        "history": history,
        "steps": watch.steps,
        "metrics": watch.metrics,
        "evaluated": [whole, pieces],
        "weights": [v.numpy().astype("float64").tolist() for v in model.trainable_variables],
    }


chosen = os.environ.get("TEST_OPTIMIZERS", "sgd momentum adam").split()
results = {name: train(OPTIMIZERS[name]) for name in chosen}
state = [keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.2)]
results["with state"] = train(OPTIMIZERS["adam"], *state)
with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
    json.dump(results, file)
