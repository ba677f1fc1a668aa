"""Trains in the way that KIND says; workers kill themselves where KILLS says; writes what came out.

KILLS: "rank:epoch:place" with spaces between, one for each round, in the order in which they come.
A place is a hook of Keras's callbacks ("test_begin"), one with a step ("batch_end:0"), or
"in_step:0", inside the forward pass. A loop of the script's own has "batch_begin", "in_step",
"batch_end" and "epoch_end"; where its workers stay, no Python may be called inside of the forward
pass, and "in_step" is between two calls of the body. With HOW=machine a worker only asks for its
machine to be crashed, by a file "crash-ROUND" with the host's name, and stands still. With IN_PLACE
the workers that are left go on in their processes: the next one to die has the wanted rank among
them, in a later round; of ranks "0,2" both do. There is another place then: "trace", where the
first step is traced. Each death leaves a file then, "death-NUMBER" with the round.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job.settings import settings

HERE, KIND = tfrun.world(), os.environ["KIND"]
KILLS = [kill.split(":", 2) for kill in os.environ.get("KILLS", "").split()]
IN_PLACE, FOLDER = "IN_PLACE" in os.environ, Path(os.environ["TEST_OUT"]).parent
EPOCHS, STEPS, BATCH = int(os.environ.get("EPOCHS", "3")), 4, 12
if KIND == "no strategy":
    strategy = tf.distribute.get_strategy()
else:
    strategy = tfrun.strategy()
rng = np.random.RandomState(0)
X, Y = rng.rand(BATCH * STEPS, 6).astype("float32"), rng.randint(0, 3, BATCH * STEPS)
VALID = X[:24], Y[:24]

OUTSIDE = KIND in ("outside", "loop, outside", "loop, seeds")
if OUTSIDE:
    with strategy.scope():
        SEEDS, GENERATOR = keras.random.SeedGenerator(11), tf.random.Generator.from_seed(5)
        COUNT = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def next_kill(epoch):
    """Returns the number of the kill that comes in this round and epoch; None for none.

    Workers that stay do not come to every place again: a kill at one that they have passed is
    passed over when its epoch is over.
    """
    number = here = tfrun.world().round
    if IN_PLACE:
        made = {int(path.name[6:]): int(path.read_text()) for path in FOLDER.glob("death-*")}
        now = [number for number, round in made.items() if round == here]
        number = now[0] if now else max(made, default=-1) + 1
        while not now and number < len(KILLS) and int(KILLS[number][1]) < epoch:
            number += 1
    return number if number < len(KILLS) and not settings().rehearses else None


def die(number):
    if IN_PLACE:
        made = FOLDER / f".death-{number}-{os.getpid()}"
        made.write_text(str(tfrun.world().round))
        made.rename(FOLDER / f"death-{number}")
    if os.environ.get("HOW") == "machine":
        Path(f".crash-{HERE.round}").write_text(socket.gethostname())
        Path(f".crash-{HERE.round}").rename(f"crash-{HERE.round}")
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)


class Where:
    """Knows where training stands, and dies where it is to."""

    epoch = step = 0

    def at(self, place):
        number, here = next_kill(self.epoch), tfrun.world()
        if number is not None:
            ranks, epoch, wanted = KILLS[number]
            is_one = here.rank in {int(rank) % here.size for rank in ranks.split(",")}
            if is_one and (self.epoch, place) == (int(epoch), wanted):
                die(number)

    def in_step(self):
        self.at(f"in_step:{self.step}")


where = Where()


class Dies(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        where.epoch, where.step = epoch, 0
        where.at("epoch_begin")

    def on_train_batch_begin(self, batch, logs=None):
        where.step = batch
        where.at(f"batch_begin:{batch}")

    def on_train_batch_end(self, batch, logs=None):
        where.at(f"batch_end:{batch}")
        if KIND == "stops" and (where.epoch, batch) == (2, 1):
            self.model.stop_training = True

    def on_test_begin(self, logs=None):
        where.at("test_begin")

    def on_test_batch_begin(self, batch, logs=None):
        where.at(f"test_batch_begin:{batch}")

    def on_test_batch_end(self, batch, logs=None):
        where.at(f"test_batch_end:{batch}")

    def on_test_end(self, logs=None):
        where.at("test_end")

    def on_epoch_end(self, epoch, logs=None):
        where.at("epoch_end")

    def on_train_end(self, logs=None):
        where.at("train_end")


class Dense(keras.layers.Dense):
    """Dies in the middle of a forward pass."""

    def call(self, x, training=None):
        if training and KILLS and not (IN_PLACE and KIND.startswith("loop")):
            where.at("trace")
            tf.numpy_function(where.in_step, [], [])
        return super().call(x)


class Noise(keras.layers.Layer):
    """Noise without a seed."""

    def call(self, x, training=None):
        return x + 0.1 * keras.random.normal(keras.ops.shape(x)) if training else x


OWN, SHARED = random.Random(6), np.random.default_rng(7)


class InPython(keras.layers.Layer):
    """Noise that Python draws in the step, from its own generators and the script's."""

    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng(5)

    def call(self, x, training=None):
        if not training:
            return x
        noise = tf.numpy_function(self.draw, [x], tf.float32)
        return x + tf.ensure_shape(noise, x.shape)

    def draw(self, like):
        drawn = np.random.normal(size=like.shape) + random.random()
        drawn += self.numbers.normal(size=like.shape) + OWN.random()
        return (0.1 * drawn).astype("float32")


class Sine(keras.layers.Layer):
    """Python that TensorFlow goes back through."""

    def call(self, x):
        return tf.ensure_shape(tf.py_function(lambda x: x * tf.sin(x), [x], tf.float32), x.shape)


class Outside(keras.layers.Layer):
    """Draws from what no model holds, and counts in it."""

    def call(self, x, training=None):
        if not training:
            return x
        noise = 0.1 * keras.random.normal(keras.ops.shape(x), seed=SEEDS)
        if KIND == "loop, seeds":
            return x + noise
        COUNT.assign_add(1.0)
        return x + noise + 0.1 * GENERATOR.uniform([]) + 0.01 * COUNT


class Begins(keras.callbacks.Callback):
    """Changes weights and the learning rate when a training begins, and the rate later on."""

    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate.assign(0.03)
        first, *others = self.model.get_weights()
        self.model.set_weights([0.5 * first, *others])

    def on_train_batch_end(self, batch, logs=None):
        rate = self.model.optimizer.learning_rate
        rate.assign(0.95 * rate)


class DrawsRate(keras.callbacks.Callback):
    """Changes the learning rate by what it draws, what it was, and how often it was called."""

    called = 0

    def on_train_batch_begin(self, batch, logs=None):
        self.called += 1
        drawn = tf.random.uniform([]) + keras.random.uniform((), seed=SEEDS) + np.random.rand()
        rate = self.model.optimizer.learning_rate
        rate.assign(0.9 * rate + 0.001 * drawn * self.called)


class Phase(enum.Enum):
    WARM = 1.0
    LATE = 0.5


class Averaged:
    """A running mean, and how it came about."""

    def __init__(self):
        self.mean, self.phase, self.seen = 1.0, Phase.WARM, []

    def update(self, value):
        self.seen.append(round(float(value), 5))
        self.mean = 0.8 * self.mean + 0.2 * float(value)
        self.phase = Phase.LATE if len(self.seen) > 5 else Phase.WARM


COLLECTED, LEAST, DRAWN = [], None, np.random.default_rng(9)


class Reaches(keras.callbacks.Callback):
    """Trains on with what is in globals, in an object of its own, and in its class."""

    rates: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        self.averaged = Averaged()

    def on_train_batch_begin(self, batch, logs=None):
        COLLECTED.append(batch + DRAWN.normal())
        rate = self.model.optimizer.learning_rate
        more = 0.001 * (len(COLLECTED) % 7) + 0.0001 * sum(COLLECTED)
        rate.assign(0.01 + more * self.averaged.phase.value)

    def on_train_batch_end(self, batch, logs=None):
        self.averaged.update(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        global LEAST
        LEAST = logs["loss"] if LEAST is None else min(LEAST, logs["loss"])
        self.rates[epoch] = LEAST + self.averaged.mean + len(self.averaged.seen)
        first, *others = self.model.get_weights()
        self.model.set_weights([first * (1 + 1e-3 * sum(self.rates.values())), *others])


def reaching(model):
    """Callbacks that are functions, with what is around them."""
    steps, tracker = 0, Averaged()

    def count(batch, logs, since=[0]):  # noqa: B006
        nonlocal steps
        steps, since[0] = steps + 1, since[0] + batch
        tracker.update(steps + since[0])

    def shrink(epoch, logs):
        first, *others = model.get_weights()
        model.set_weights([first * (1 - 1e-5 * tracker.mean), *others])

    by_functions = keras.callbacks.LambdaCallback(on_train_batch_end=count, on_epoch_end=shrink)
    return [Reaches(), by_functions]


class Holds(keras.callbacks.Callback):
    """Has a metric, and a copy of the model that follows it, and trains on with what they hold."""

    def __init__(self, model):
        super().__init__()
        self.mean, self.average = keras.metrics.Mean(), keras.models.clone_model(model)
        self.average.set_weights(model.get_weights())

    def on_train_batch_end(self, batch, logs=None):
        self.mean.update_state(logs["loss"])
        for mine, its in zip(self.average.weights, self.model.weights, strict=True):
            mine.assign(0.8 * mine + 0.2 * its)

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate.assign(0.01 * self.mean.result())
        if epoch % 2:
            self.model.set_weights(self.average.get_weights())


class OwnStep(keras.Model):
    """Updates its metrics when the weights are updated already."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=predicted)
        found = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(found, self.trainable_variables, strict=True))
        return self.compute_metrics(x, y, predicted)


class Numbers(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.order = np.arange(len(X))

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        rows = self.order[index * BATCH : (index + 1) * BATCH]
        return X[rows], Y[rows]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def batches():
    """Another order each time round, without an end."""
    draw = np.random.RandomState(7)
    while True:
        order = draw.permutation(len(X))
        for begin in range(0, len(X), BATCH):
            rows = order[begin : begin + BATCH]
            yield X[rows], Y[rows]


def drawn():
    """Rows that Python's global generators choose, and noise, batch by batch."""
    while True:
        rows = np.random.randint(0, len(X), BATCH)
        time.sleep(0.02)  # so that steps, and deaths, come in between
        yield X[rows] + np.float32(random.random()), Y[rows]


class Slow(Numbers):
    """In the making whenever a callback draws, and draws itself only between two epochs."""

    def __getitem__(self, index):
        time.sleep(0.02)
        return super().__getitem__(index)

    def on_epoch_end(self):
        super().on_epoch_end()
        SHARED.shuffle(self.order)


class DrawsFactor(keras.callbacks.Callback):
    """Changes weights by what it draws, while data is made that draws nothing."""

    def on_train_batch_end(self, batch, logs=None):
        drawn = np.random.rand() * random.random() * SHARED.random()
        first, *others = self.model.get_weights()
        self.model.set_weights([first * (1 + 0.01 * drawn), *others])


class Noisy(Numbers):
    """Augmented from the global generators."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + np.random.rand(*x.shape).astype("float32") * np.float32(random.random()), y


def in_python(x, y):
    """Noise that Python draws for each sample."""
    noise = tf.numpy_function(lambda: np.float32(0.3 * np.random.rand(6)), [], tf.float32)
    return x + tf.ensure_shape(noise, [6]), y


def noisy(x, y):
    return x + tf.random.stateless_normal(tf.shape(x), seed=[1, 2], stddev=0.1), y


def data():
    """Returns (what `fit` is given, its further arguments, the validation data)."""
    plain = tf.data.Dataset.from_tensor_slices((X, Y))
    match KIND:
        case "dataset":
            made = tfrun.Dataset.from_arrays((X, Y), batch_size=BATCH, shuffle=True, seed=1)
            return made, {}, VALID
        case "seeded" | "stops" | "no strategy":
            return plain.shuffle(99, seed=3).batch(BATCH), {}, VALID
        case "unseeded":
            return plain.shuffle(99).batch(BATCH, drop_remainder=True), {}, VALID
        case "map":
            return plain.shuffle(99).map(noisy).batch(BATCH), {}, VALID
        case "augmented":
            noise = keras.layers.GaussianNoise(0.2, seed=4)
            shuffled = plain.shuffle(99, seed=3).batch(BATCH)
            return shuffled.map(lambda x, y: (noise(x, training=True), y)), {}, VALID
        case "cache":
            return plain.map(noisy).cache().shuffle(99).batch(BATCH).prefetch(2), {}, VALID
        case "repeat":
            endless = plain.shuffle(99, seed=3).repeat().batch(BATCH)
            return endless, {"steps_per_epoch": STEPS}, VALID
        case "repeat inside":
            return plain.shuffle(99, seed=3).repeat(2).batch(2 * BATCH), {}, VALID
        case "filter":
            some = plain.shuffle(99, seed=3).filter(lambda x, y: x[0] < 2.0)
            return some.batch(BATCH), {}, VALID
        case "shared shuffle":
            every = plain.shuffle(99, seed=3)
            made = every.take(BATCH * STEPS).batch(BATCH)
            return made, {"validation_steps": 2}, every.batch(4)
        case "generator":
            return batches(), {"steps_per_epoch": STEPS}, VALID
        case "from_generator":
            spec = tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None], tf.int64)
            made = tf.data.Dataset.from_generator(batches, output_signature=spec)
            return made, {"steps_per_epoch": STEPS}, VALID
        case "drawn":
            return drawn(), {"steps_per_epoch": STEPS, "validation_steps": 2}, drawn()
        case "drawn from_generator":
            spec = tf.TensorSpec([None, 6], tf.float32), tf.TensorSpec([None], tf.int64)
            made = tf.data.Dataset.from_generator(drawn, output_signature=spec)
            return made, {"steps_per_epoch": STEPS}, VALID
        case "drawn map":
            return plain.shuffle(99, seed=3).map(in_python).batch(BATCH), {}, VALID
        case "drawn pydataset":
            return Noisy(), {}, Noisy()
        case "drawn besides" | "in python besides":
            return Slow(), {}, Slow()
        case "pydataset":
            return Numbers(), {}, VALID
    return (X, Y), {"batch_size": BATCH}, VALID


def model_of():
    inputs = keras.Input((6,))
    hidden = Dense(8, activation="relu")(inputs)
    if KIND.startswith(("rows", "optimizer")):  # of a table: each replica has others
        numbers = keras.ops.cast(inputs * 16, "int32")
        rows = keras.layers.Flatten()(keras.layers.Embedding(16, 2)(numbers))
        hidden = keras.layers.Concatenate()([hidden, rows])
    if KIND == "layers":
        hidden = keras.layers.Dropout(0.3)(keras.layers.BatchNormalization()(hidden))
    if OUTSIDE:
        hidden = Outside()(hidden)
    if KIND.startswith("in python"):
        hidden = InPython()(hidden)
    if KIND == "in python besides":  # a sum in the midst of the step: it has two calls before it
        hidden = keras.layers.BatchNormalization(synchronized=True)(Sine()(hidden))
    if KIND == "noise":
        hidden = Noise()(hidden)
    cls = OwnStep if KIND == "own step" else keras.Model
    return cls(inputs, keras.layers.Dense(3)(hidden))


def optimizer_of():
    name = KIND.partition("optimizer, ")[2]
    if KIND.startswith("swaps"):
        return keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.8)
    if not name:
        return keras.optimizers.Adam(0.02)
    sys.path.append(str(Path(__file__).parents[2] / "scripts/alone"))
    from every_optimizer import OPTIMIZERS

    return OPTIMIZERS[name]()


def fits(model):
    given, more, valid = data()
    x, y = given if isinstance(given, tuple) else (given, None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model.compile(optimizer_of(), loss, metrics=["accuracy"])
    callbacks = [DrawsRate(), Dies()] if KIND == "outside" else [Dies()]
    if KIND == "callbacks":
        writers = keras.callbacks.CSVLogger, keras.callbacks.BackupAndRestore
        paths = (str(FOLDER / name) for name in ("log.csv", "backup"))
        scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate)
        callbacks = [
            scheduler,
            Begins(),
            *(one(p) for one, p in zip(writers, paths, strict=True)),
            *callbacks,
        ]
    if KIND == "drawn besides":
        callbacks.insert(0, DrawsFactor())
    if KIND == "holds":
        callbacks.insert(0, Holds(model))
    if KIND == "reaches":
        callbacks = [*reaching(model), *callbacks]
    if KIND == "best":
        stopping, plateau = keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau
        saving = keras.callbacks.ModelCheckpoint
        callbacks = [
            saving(str(FOLDER / "best.keras"), "val_loss", save_best_only=True),
            stopping("val_accuracy", patience=EPOCHS, mode="min", restore_best_weights=True),
            plateau("loss", patience=1, min_delta=9.0),
            *callbacks,
        ]
    if KIND.startswith("swaps"):
        callbacks.insert(0, keras.callbacks.SwapEMAWeights(swap_on_epoch="epochs" in KIND))
    first = model.fit(
        x, y, epochs=EPOCHS, verbose=0, validation_data=valid, callbacks=callbacks, **more
    )
    if KIND == "unseeded":  # made when a training is done: its seed is the same again
        x = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(99).batch(BATCH)
    where.epoch = 100
    second = model.fit(x, y, epochs=1, verbose=0, **more)
    return [first.history, second.history, model.evaluate(*VALID, verbose=0)]


def loop(model):
    made = data()[0]
    if KIND != "loop":
        made = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(99, seed=3).batch(BATCH)
    else:
        made = tfrun.Dataset.from_arrays((X, Y), batch_size=BATCH, shuffle=True, seed=1)
    valid = tf.data.Dataset.from_tensor_slices(VALID).batch(BATCH)
    if KIND == "loop, distributed":
        made, valid = map(strategy.experimental_distribute_dataset, (made, valid))
    with strategy.scope():
        optimizer, mean = keras.optimizers.Adam(0.02), keras.metrics.Mean()
        right = keras.metrics.SparseCategoricalAccuracy()
        optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    @tf.function
    def step(batch):
        def on_replica(x, y):
            with tf.GradientTape() as tape:
                value = losses(y, model(x, training=True))
                loss = tf.reduce_sum(value) / BATCH * scales[0] * scales[1]
            mean.update_state(value)
            found = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

        strategy.run(on_replica, batch)

    @tf.function
    def prepared(batch):
        return strategy.run(lambda x, y: (x / 2, y), batch)

    @tf.function
    def validate(batch):
        strategy.run(lambda x, y: right.update_state(y, model(x)), batch)

    rates, scales = np.random.default_rng(8), [tf.Variable(1.0)]
    state, rights = tfrun.TrainState(model=model, optimizer=optimizer, metrics=mean), []
    scales.append(tf.Variable(1.0))  # no part of the state: it begins anew with its worker
    for epoch in range(state.epoch, EPOCHS):
        for batch in state.steps(made, epochs=epoch + 1):
            where.epoch, where.step = state.epoch, state.step_in_epoch
            where.at(f"batch_begin:{where.step}")
            batch = prepared(batch)
            if IN_PLACE:
                where.in_step()
            if KIND == "loop, seeds":
                optimizer.learning_rate.assign(0.02 * rates.uniform(0.9, 1.1) * SHARED.random())
                scales[0].assign_add(0.1)
                scales[1].assign(1 + scales[0] / 2)
            step(batch)
            where.at(f"batch_end:{where.step}")
            if where.step == STEPS - 1:
                where.at("epoch_end")
        for batch in valid if KIND == "loop, distributed" else ():
            validate(batch)
        if OUTSIDE:
            COUNT.assign(COUNT / 2)
            optimizer.learning_rate.assign(0.02 * keras.random.uniform((), 0.9, seed=SEEDS))
        rights.append(float(right.result()))
        right.reset_state()
    return [state.step, float(mean.result()), rights[-1]]


with strategy.scope():
    network = model_of()
found = loop(network) if KIND.startswith("loop") else fits(network)
if tfrun.world().is_chief:
    digest = hashlib.sha256(b"".join(w.tobytes() for w in network.get_weights())).hexdigest()
    result = {"found": found, "weights": digest}
    Path(os.environ["TEST_OUT"]).write_text(json.dumps(result))
