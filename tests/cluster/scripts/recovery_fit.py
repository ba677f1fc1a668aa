"""Two `fit` calls whose workers kill themselves where KILLS says; the chief writes what came out.

KILLS: "round:rank:fit:epoch:where", where is a step, "b" (the epoch begins), "v" (validation), "e"
(it ends), "s" (a file of weights is being written) or "i" and a number (inside that step, of those
that this round has begun in the epoch); several with spaces between. As `fit` 9 count the calls
between the two: "v" is `evaluate`, "p" is `predict`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE = tfrun.world()
KILLS = [kill.split(":") for kill in os.environ.get("KILLS", "").split()]
DATA, STEP = os.environ.get("TEST_DATA", "arrays"), os.environ.get("TEST_STEP", "keras")
PER_EXECUTION = int(os.environ.get("TEST_PER_EXECUTION", "1"))
rng = np.random.RandomState(0)
X, Y = rng.rand(170, 8, 8, 1).astype("float32"), rng.randint(0, 10, 170)
VALID = X[:40], Y[:40]


class Kill(keras.callbacks.Callback):
    running = None  # the one of the `fit` that runs

    def __init__(self, fit):
        super().__init__()
        self.fit, self.epoch = fit, 0

        self.inside = 0  # steps of the epoch that have begun in this round

    @classmethod
    def step_runs(cls):
        cls.running.at(f"i{cls.running.inside}")
        cls.running.inside += 1

    def at(self, where):
        for number, rank, fit, epoch, place in KILLS:
            here = (HERE.round, HERE.rank, self.fit, self.epoch)
            if here == (int(number), int(rank), int(fit), int(epoch)) and place == where:
                os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch, self.inside = epoch, 0
        Kill.running = self
        self.at("b")

    def on_train_batch_begin(self, batch, logs=None):
        self.at(str(batch))

    def on_test_batch_end(self, batch, logs=None):
        self.at("v")

    def on_predict_batch_end(self, batch, logs=None):
        self.at("p")

    def on_epoch_end(self, epoch, logs=None):
        self.at("e")


class Output(keras.layers.Dense):
    def call(self, x, training=None):
        if training and PER_EXECUTION > 1:  # several steps are one call of TensorFlow's
            tf.numpy_function(Kill.step_runs, [], [])
        return super().call(x)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        killer.at("s")


class OwnStep(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


class Gan(keras.Model):
    """Three optimizers of its own; two of them get their variables in the first step."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.generator = keras.Model(inputs, outputs)
        self.critic = keras.Sequential([keras.Input((10,)), keras.layers.Dense(1)])
        self.average = keras.Sequential([keras.Input((10,)), keras.layers.Dense(1)])
        self.critic_optimizer = keras.optimizers.SGD(0.05, 0.9)
        self.others = {"generator": keras.optimizers.Adam(0.01)}

    def call(self, x, training=False):
        return self.generator(x, training=training)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            predicted = self(x, training=True)
            score = tf.reduce_mean(self.critic(predicted) ** 2)
            loss = self.compute_loss(x, y, predicted) + 0.1 * score
        generator, critic = self.generator.trainable_variables, self.critic.trainable_variables
        pairs = zip(tape.gradient(score, critic), critic, strict=True)
        self.critic_optimizer.apply_gradients(pairs)
        pairs = zip(tape.gradient(loss, generator), generator, strict=True)
        self.others["generator"].apply_gradients(pairs)
        for mean, value in zip(self.average.variables, critic, strict=True):
            mean.assign(0.9 * mean + 0.1 * value)
        return {metric.name: metric.result() for metric in self.metrics}


class Remembers(keras.callbacks.Callback):
    """A callback of the user's own, with plain data in its attributes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(epoch)


def build():
    keras.utils.set_random_seed(7)
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(4, 3)(inputs)
    if STEP != "gated":  # all that a step changes are then weights
        x = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization()(x))
    x = keras.layers.Flatten()(x)
    outputs = Output(10)(keras.layers.Dense(16, activation="relu")(x))
    model = {"own": OwnStep, "gan": Gan}.get(STEP, keras.Model)(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=PER_EXECUTION,
    )
    return model


def data():
    if DATA == "dataset":
        return {"x": tfrun.Dataset.from_arrays((X, Y), batch_size=20, shuffle=True, seed=1)}
    if DATA == "tf.data":
        return {"x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(170).batch(20)}
    return {"x": X, "y": Y, "batch_size": 20}


killer = Kill(0)
strategy = tfrun.strategy()
with strategy.scope():
    model = build()
early = keras.callbacks.EarlyStopping(monitor="loss", patience=9)
plateau = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1)
decay = keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.9)
folder = Path(os.environ["TEST_FOLDER"])
best = keras.callbacks.ModelCheckpoint(
    folder / "best.weights.h5", monitor="loss", save_best_only=True, save_weights_only=True
)
table = keras.callbacks.CSVLogger(folder / "table.csv")
remembers = Remembers()
callbacks = [early, plateau, decay, best, table, remembers]
inputs = data()
first = model.fit(
    **inputs, epochs=3, validation_data=VALID, callbacks=[*callbacks, killer], verbose=2
)
between = model.evaluate(*VALID, verbose=0, callbacks=[Kill(9)])
between.append(float(model.predict(VALID[0], verbose=0, callbacks=[Kill(9)]).sum()))
print("between the two", flush=True)
second = model.fit(**inputs, epochs=2, callbacks=[Kill(1)], verbose=2)
digest = hashlib.sha256()
optimizers = [model.optimizer]
if STEP == "gan":
    optimizers = [model.others["generator"], model.critic_optimizer]
    assert model.optimizer.iterations.numpy() == 0  # Keras makes one that this model leaves alone
for variable in [*model.variables, *(v for o in optimizers for v in o.variables)]:
    digest.update(variable.numpy().tobytes())
found = {
    "weights": digest.hexdigest(),
    "iterations": int(optimizers[0].iterations.numpy()),
    "first": first.history,
    "epochs": [first.epoch, second.epoch],
    "second": second.history,
    "between": [float(value) for value in between],
    "callbacks": [early.wait, early.best, plateau.wait, plateau.best, best.best, remembers.seen],
}
(folder / f"{HERE.rank}.json").write_text(json.dumps(found))
print("rounds", HERE.round, flush=True)
sys.exit(0)
