"""Batches that Python makes, at another speed on each worker; also run by plain `python`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

keras.config.set_floatx("float64")
RANK = int(os.environ.get("RANK", "0"))
if "TFRUN_ROUND" in os.environ:
    scope = tf.distribute.MultiWorkerMirroredStrategy().scope
else:
    scope = contextlib.nullcontext
numbers = np.random.default_rng(0)
X = numbers.normal(size=(83, 4))
Y = (X @ np.array([1.0, -2.0, 3.0, 0.5]) + 0.1 * numbers.normal(size=83))[:, None]
W = numbers.uniform(0.5, 1.5, size=83)
SIGNATURE = (tf.TensorSpec((None, 4), tf.float64), tf.TensorSpec((None, 1), tf.float64))
seen: dict = {}


def wait() -> None:
    time.sleep((0.0, 0.01, 0.003)[RANK])


def finite(sizes=(16,), weighted=False):
    low, number = 0, 0
    while low < 83:
        rows = slice(low, low + sizes[number % len(sizes)])
        low, number = rows.stop, number + 1
        wait()
        yield (X[rows], Y[rows], W[rows]) if weighted else (X[rows], Y[rows])


def endless(size=10):
    drawn = np.random.default_rng(1)
    while True:
        wait()
        rows = drawn.integers(0, 83, size)
        yield X[rows], Y[rows]


def counted():
    """The labels of batch k are k."""
    for k in range(1000):
        wait()
        yield np.zeros((4, 4)), np.full((4, 1), float(k))


class Rows(keras.utils.PyDataset):
    def __init__(self, size=16, shuffles=False, **kwargs):
        super().__init__(**kwargs)
        self.size, self.shuffles, self.order = size, shuffles, np.arange(83)
        self.hooks = [0, 0]

    def __len__(self):
        return math.ceil(83 / self.size)

    def __getitem__(self, index):
        wait()
        rows = self.order[index * self.size : (index + 1) * self.size]
        return X[rows], Y[rows]

    def on_epoch_begin(self):
        self.hooks[0] += 1

    def on_epoch_end(self):
        self.hooks[1] += 1
        if self.shuffles:
            np.random.shuffle(self.order)


class Endless(keras.utils.PyDataset):
    @property
    def num_batches(self):
        return None

    def __getitem__(self, index):
        wait()
        rows = np.random.default_rng(index).integers(0, 83, 10)
        return X[rows], Y[rows]


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            self.model.stop_training = True


def model(per_execution=1):
    draw = keras.initializers.RandomNormal
    with scope():
        made = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(3, activation="tanh", kernel_initializer=draw(seed=3)),
                keras.layers.Dense(1, kernel_initializer=draw(seed=4)),
            ]
        )
        made.compile(
            optimizer=keras.optimizers.SGD(0.05, momentum=0.5),
            loss="mse",
            metrics=["mae"],
            steps_per_execution=per_execution,
        )
    return made


def fit(name, data, per_execution=1, **options):
    keras.utils.set_random_seed(7)
    made = model(per_execution)
    history = made.fit(data, verbose=0, **options).history
    seen[name] = [history, [weight.tolist() for weight in made.get_weights()]]


def from_generator(make):
    return tf.data.Dataset.from_generator(make, output_signature=SIGNATURE)


warnings.simplefilter("ignore")  # Keras says that data has ended
fit("generator", finite((16, 7, 11)), epochs=2)
fit("batches smaller than workers", finite((16, 1, 2), weighted=True))
fit("steps", endless(), steps_per_epoch=4, epochs=3)
fit("steps that go together", endless(), 3, steps_per_epoch=4, epochs=2)
fit("validated", X, y=Y, batch_size=50, shuffle=False, epochs=3, validation_data=finite((10,)))
rows = Rows()
fit("PyDataset", rows, epochs=2)
seen["hooks"] = rows.hooks
fit("PyDataset that shuffles", Rows(shuffles=True), epochs=3, shuffle=False)
fit("PyDataset with threads", Rows(workers=3, max_queue_size=2), epochs=2)
fit("PyDataset with processes", Rows(32, workers=2, use_multiprocessing=True), epochs=2)
fit("PyDataset in parts", Rows(8, workers=3), steps_per_epoch=3, epochs=4, shuffle=False)
fit("PyDataset with class weights", Rows(), shuffle=False, class_weight={0: 1.0, 1: 2.0})
fit("PyDataset without end", Endless(workers=2), steps_per_epoch=4, epochs=2)
fit("PyDataset validated", Rows(), epochs=2, shuffle=False, validation_data=Rows(10, workers=2))
fit("from_generator", from_generator(finite), epochs=2)
ahead = endless(8)
fit("from_generator with state", from_generator(lambda: ahead), steps_per_epoch=4, epochs=2)
pairs = tf.data.Dataset.from_tensor_slices((X, Y))
fit("the first order of a shuffle", pairs.shuffle(83, seed=3).batch(16), epochs=2)
any_length = pairs.map(lambda x, y: (tf.boolean_mask(x, x == x), y)).shuffle(83, seed=3)
assert any_length.element_spec[0].shape[0] is None
fit("the first order of rows of any length", any_length.batch(16), epochs=2)
fit("their order beneath a cache", any_length.cache().batch(16), epochs=2)

# Plain Keras loses what its iterators have read ahead, a different number each time, and raises
# "generator already executing" where its thread still reads: these are what it would give if not.
if "TFRUN_ROUND" in os.environ:
    keras.utils.set_random_seed(7)
    made, data = model(), counted()
    made.set_weights([np.zeros_like(weight) for weight in made.get_weights()])
    one = [made.evaluate(data, steps=4, verbose=0)[1] for _ in range(3)]
    predicted = [made.predict(data, steps=3, verbose=0).shape for _ in range(2)]
    seen["nothing is lost between calls"] = [one, predicted, float(next(data)[1][0, 0])]
    data = counted()
    made.fit(X, Y, epochs=3, batch_size=50, verbose=0, validation_data=data, validation_steps=4)
    seen["nothing is lost between validations"] = float(next(data)[1][0, 0])
    data = counted()
    made.fit(data, steps_per_epoch=40, verbose=0, callbacks=[Stop()])
    # More than may have been read ahead: what is left of that is for the next call, and the script
    # itself would not see it.
    made.fit(data, steps_per_epoch=20, verbose=0)
    seen["nothing is lost in an epoch that ends early"] = float(next(data)[1][0, 0])
seen["the script's own arrays"] = [float(X.sum()), float(Y.sum()), float(W.sum())]

out = os.environ["TFRUN_TEST_OUT"]
Path(out).write_text(json.dumps(seen))
