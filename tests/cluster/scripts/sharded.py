"""Small encoders, one for each of OPTIMIZERS; KILLS is "round:rank:fit:epoch:batch", several.

Each worker writes what its weights were, how many bytes of optimizers' variables it held, and what
it has sent; the chief writes the optimizers' variables too. WAYS says what else happens.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.engine import host_collective

HERE, FOLDER = tfrun.world(), Path(os.environ["TEST_FOLDER"])
KILLS = [tuple(map(int, kill.split(":"))) for kill in os.environ.get("KILLS", "").split()]
NAMES, WAYS = os.environ["OPTIMIZERS"].split(), os.environ.get("WAYS", "").split()
WIDTH, EPOCHS = int(os.environ.get("WIDTH", "96")), int(os.environ.get("TEST_EPOCHS", "2"))
made = keras.optimizers
decay = made.schedules.ExponentialDecay(0.01, 5, 0.9)
rng = np.random.default_rng(0)
X = rng.integers(0, 40, (100, 10)).astype("int32")
Y = X[:, 0] % 3
SCALE = 1e38  # its first steps are not finite, and change nothing


class Clipped(made.Adam):
    """One of the script's own."""


OPTIMIZERS = {
    "momentum": lambda: made.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda: made.Adam(decay, global_clipnorm=0.5),
    "averaged": lambda: made.AdamW(
        0.01, clipnorm=0.3, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3
    ),
    "averaged at the end": lambda: made.Adam(0.01, amsgrad=True, use_ema=True, clipvalue=0.1),
    "rmsprop": lambda: made.RMSprop(0.01, momentum=0.9),
    "adagrad": lambda: made.Adagrad(0.05),
    "lion": lambda: made.Lion(0.003),
    "nadam": lambda: made.Nadam(0.01),
    "adamax": lambda: made.Adamax(0.01),
    "adadelta": lambda: made.Adadelta(1.0),
    "ftrl": lambda: made.Ftrl(0.05),
    "accumulated": lambda: made.Adam(
        0.01, gradient_accumulation_steps=3, global_clipnorm=0.4, weight_decay=0.01
    ),
    "scaled": lambda: made.LossScaleOptimizer(
        made.Adam(0.01, global_clipnorm=1.0), initial_scale=SCALE, dynamic_growth_steps=3
    ),
    "no state": lambda: made.SGD(0.05),
    "own": lambda: Clipped(0.01),
}


def build(name):
    keras.utils.set_random_seed(5)
    words = keras.Input((10,), dtype="int32")
    x = keras.layers.Embedding(40, WIDTH)(words)
    x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(2, WIDTH // 2)(x, x)])
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.Dense(4 * WIDTH, "relu", kernel_constraint=keras.constraints.MaxNorm(1.5))(x)
    x = keras.layers.Dropout(0.1)(keras.layers.BatchNormalization()(x))
    x = keras.layers.Dense(WIDTH)(x)
    outputs = keras.layers.Dense(3)(keras.layers.GlobalAveragePooling1D()(x))
    model = (Reads if "reads" in WAYS else keras.Model)(words, outputs)
    model.compile(
        optimizer=OPTIMIZERS[name.replace("_", " ")](),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=3 if "together" in WAYS else 1,
        run_eagerly="eagerly" in WAYS,
    )
    return model


class Reads(keras.Model):
    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "norm": tf.norm(self.optimizer.variables[2])}


def digest(variables):
    values = [np.asarray(v.numpy()).tobytes() for v in variables]
    return hashlib.sha256(b"".join(values)).hexdigest()


def slots(model):
    """Bytes of an optimizer's variables in this process, read past all that is ours."""
    strategy, total = model.distribute_strategy, 0
    for variable in model.optimizer.variables:
        if variable.shape.rank:
            (copy,) = strategy.experimental_local_results(variable._value)
            total += (
                tf.raw_ops.ReadVariableOp(resource=copy.handle, dtype=copy.dtype).numpy().nbytes
            )
    return total


class Watch(keras.callbacks.Callback):
    def __init__(self, number):
        super().__init__()
        self.number, self.epoch, self.held, self.seen = number, 0, [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (HERE.round, HERE.rank, self.number, self.epoch, batch) in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch, logs=None):
        self.held.append(slots(self.model))
        if "slowly" in WAYS:
            time.sleep(0.4)  # a person may come in between

    def on_epoch_end(self, epoch, logs=None):
        if "looks" in WAYS:  # on each worker, whoever holds them
            self.seen.append(digest(self.model.optimizer.variables))


def also(model, name):
    """What a script may do with an optimizer afterwards."""
    found = {}
    path = FOLDER / f"{name}.keras"
    model.save(path)
    if HERE.is_chief:  # alone
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(FOLDER / "tf"))
    model.fit(X, Y, batch_size=24, epochs=1, verbose=0)
    model.train_on_batch(X[:24], Y[:24])
    found["after"] = digest(model.weights)
    loaded = keras.models.load_model(path)
    found["saved"] = digest([*loaded.weights, *loaded.optimizer.variables])
    loaded.fit(X, Y, batch_size=24, epochs=1, verbose=0)
    found["loaded"] = digest(loaded.weights)
    optimizer = model.optimizer
    tf.train.Checkpoint(model=model, optimizer=optimizer).read(str(FOLDER / "tf"))
    model.fit(X, Y, batch_size=24, epochs=1, verbose=0)
    found["restored"] = digest(model.weights)
    return found


results = {}
for number, name in enumerate(NAMES):
    model, watch, before = build(name), Watch(number), 0
    group = host_collective.current()
    before = group.sent_bytes if group else 0
    saves = keras.callbacks.ModelCheckpoint(FOLDER / "best.keras") if "looks" in WAYS else watch
    callbacks = [watch] if saves is watch else [watch, saves]
    history = model.fit(X, Y, batch_size=24, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    group = host_collective.current()
    results[name] = {
        "weights": digest(model.weights),
        "losses": history.history["loss"],
        "iterations": int(model.optimizer.iterations),
        "held": max(watch.held, default=0),
        "sent": (group.sent_bytes if group else 0) - before,
        "seen": watch.seen,
        "state": digest(model.optimizer.variables) if HERE.is_chief else "",
        **(also(model, name) if "also" in WAYS else {}),
    }
(FOLDER / f"{HERE.rank}.json").write_text(json.dumps(results))
