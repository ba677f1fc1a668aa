"""Scripts for one process, and the same ones with batch and rate multiplied by hand.

`scale_batch.py OUT 1 KIND …` are the first, `scale_batch.py OUT 2 KIND …` the second, for two
workers. With the kind "dies" worker 1 is killed in the middle of that training.
"""

import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

OUT, TIMES, KINDS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
BATCH, EPOCHS = 8 * TIMES, 3
BEFORE, AFTER = 13, 7  # steps of an epoch of 102 samples in batches of 8, and of 16
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(102, 4))
y = np.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)
weights = np.random.default_rng(1).uniform(0.5, 2, size=len(x))
rows = tf.data.Dataset.from_tensor_slices
sgd = keras.optimizers.SGD


def rate(base=0.1, rule="linear", own=8, warmup=AFTER):
    """What somebody writes who has doubled the batch."""
    if TIMES == 1:
        return base
    return tfrun.scaled_lr(base, rule=rule, base_batch=own, batch=2 * own, warmup_steps=warmup)


class Stretched(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that goes on by samples, with a warm-up."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, step):
        done = tf.minimum(tf.cast(step, "float32") / AFTER, 1.0)
        return (1 + done) * tf.cast(self.inner(step * BEFORE // AFTER), "float32")


class Halves(keras.callbacks.Callback):
    """A script's own schedule, as a callback."""

    def on_train_batch_begin(self, batch, logs=None):
        optimizer = self.model.optimizer
        step = int(optimizer.iterations.numpy())
        if TIMES == 1 and batch == 0:
            optimizer.learning_rate = 0.1 / 2 ** (step // AFTER)
        if TIMES > 1:
            optimizer.learning_rate = 0.1 / 2 ** (step // AFTER) * (1 + min(step / AFTER, 1))


class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        here = tfrun.world()
        if (here.rank, here.round) == (1, 0) and self.model.optimizer.iterations.numpy() == 24:
            os.kill(os.getpid(), signal.SIGKILL)


class Pair(keras.Model):
    """Two optimizers, as in a GAN."""

    def __init__(self):
        super().__init__()
        self.one, self.other = keras.layers.Dense(2), keras.layers.Dense(2)

    def compile(self, first, second):
        super().compile(loss="mse")
        self.first, self.second = first, second

    def call(self, x):
        return self.other(self.one(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        for layer, optimizer in ((self.one, self.first), (self.other, self.second)):
            found = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, found), found)
        return {"loss": loss}


def of(kind):
    """The data, the arguments of `fit` and the optimizers."""
    data, more, optimizer = (x, y), {"batch_size": BATCH, "shuffle": False}, sgd(rate())
    match kind:
        case "default batch":
            data, more = (np.tile(x, (2, 1)), np.tile(y, (2, 1))), {"shuffle": False}
            more |= {"batch_size": 64} if TIMES > 1 else {}
            optimizer = sgd(rate(own=32, warmup=4))
        case "weights":
            more |= {"sample_weight": weights, "validation_split": 0.25, "validation_batch_size": 8}
            optimizer = sgd(rate(warmup=5), momentum=0.5)
        case "validates":  # its steps are of the script's batch
            more |= {"validation_data": (x[:50], y[:50]), "validation_steps": 2}
            more |= {"validation_batch_size": 8} if TIMES > 1 else {}
        case "adam":
            optimizer = keras.optimizers.AdamW(rate(0.01, "sqrt"), weight_decay=0.1)
        case "sets rate":
            more["callbacks"], optimizer = [Halves()], sgd(0.1)
        case "pair":
            optimizer = sgd(rate()), keras.optimizers.Adam(rate(0.01, "sqrt"))
        case "pipeline":
            data, more = (rows((x, y, weights)).shuffle(200, seed=3).batch(BATCH).prefetch(2),), {}
        case "mapped" | "twice" | "dies":
            samples = rows((x, y)).shuffle(200, seed=3).batch(BATCH, num_parallel_calls=2)
            data, more = (samples.map(lambda a, b: (-a, b)).prefetch(1),), {}
        case "drops":
            samples = rows({"x": x, "y": y}).batch(BATCH, drop_remainder=True)
            data, more = (samples.map(lambda row: (row["x"], row["y"])),), {}
            optimizer = sgd(rate(warmup=6))
        case "steps":
            data, more = (rows((x, y)).batch(BATCH).repeat(),), {"steps_per_epoch": 14 // TIMES}
        case "padded":
            long = rows((x, y)).map(lambda a, b: (tf.repeat(a, 1 + tf.cast(a[0] > 0, tf.int32)), b))
            data, more = (long.padded_batch(BATCH, ([None], [None])),), {}
        case "generator":
            batches = ((x[i : i + 8], y[i : i + 8]) for i in range(0, 96, 8))
            data, more = (batches,), {"steps_per_epoch": 6}
        case "stated":
            optimizer = sgd(tfrun.scaled_lr(0.1, batch=8))
        case "scaled":  # follows the batch by itself
            optimizer = sgd(tfrun.scaled_lr(0.1, base_batch=8))
    if kind in ("schedule", "dies"):
        steps = keras.optimizers.schedules.PiecewiseConstantDecay([5, 30], [0.1, 0.05, 0.01])
        optimizer = sgd(Stretched(steps) if TIMES > 1 else steps)
    return data, more, optimizer


found = {}
for kind in KINDS:
    keras.utils.set_random_seed(1)
    data, more, optimizer = of(kind)
    inputs = hidden = keras.Input((None if kind == "padded" else 4,))
    if kind == "padded":
        hidden = keras.layers.Dense(4, activation="tanh")(keras.layers.Reshape((-1, 1))(inputs))
        hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    hidden = keras.layers.Dense(5, activation="tanh")(hidden)
    model = Pair() if kind == "pair" else keras.Model(inputs, keras.layers.Dense(2)(hidden))
    if kind == "mirrored":
        with tf.distribute.MirroredStrategy().scope():
            model = keras.models.clone_model(model)
    if kind == "pair":
        model.compile(*optimizer)
    else:
        model.compile(optimizer, "mse", metrics=["mae"])
    if kind == "on batch":
        model.train_on_batch(x[:8], y[:8])
    more["callbacks"] = [*more.get("callbacks", ()), *([Dies()] if kind == "dies" else ())]
    if kind in ("twice", "dies"):
        model.fit(*data, epochs=2, verbose=0)
    history = model.fit(*data, epochs=EPOCHS, verbose=0, **more).history
    counter = model.first if kind == "pair" else model.optimizer
    history["steps"] = int(counter.iterations.numpy())
    history |= {f"weight {i}": weight for i, weight in enumerate(model.get_weights())}
    found |= {f"{kind}: {name}": value for name, value in history.items()}
np.savez(f"{OUT}{tfrun.world().rank}", **found)
