"""Milliseconds a step of `fit` with and without what watches it, in turns within one job."""

import contextlib
import sys
import time
from unittest import mock

import cnn
import keras
import numpy as np
import pinned

import tfrun
from tfrun.train import session
from tfrun.train.step_meter import StepMeter

STEPS, ROUNDS = int(sys.argv[2]), int(sys.argv[3])


class Clock(keras.callbacks.Callback):
    """Between the ends of the first step and the last one."""

    def on_epoch_begin(self, epoch, logs=None):
        self.first = 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.last = time.perf_counter()
        self.first = self.first or self.last


class Nothing:
    """In place of the meter."""

    def __init__(self, *args, **kwargs):
        pass

    def begins(self, *args, **kwargs):
        pass

    def aside(self, kind):
        return contextlib.nullcontext()

    returned = ended = rests = closes = evaluation_begins = evaluation_ends = begins


strategy = tfrun.strategy()


def small():
    made = keras.Sequential(
        [keras.layers.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    )
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made


with strategy.scope():
    models = [small() if sys.argv[1] == "small" else cnn.compiled(keras) for _ in range(2)]
if sys.argv[1] == "small":
    x = np.random.default_rng(0).random((4096, 64), np.float32)
    y = x[:, :10]
else:
    x, y = cnn.samples()
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
clock, times = Clock(), ([], [])
watched = strategy.step_clock
for turn in range(2 * ROUNDS + 2):
    is_watched = (turn + turn // 2) % 2 == 0  # first one, then the other goes first
    strategy.step_clock = watched if is_watched else None
    meter = StepMeter if is_watched else Nothing
    data = tfrun.Dataset.from_arrays((x, y), batch_size=batch, shuffle=True, seed=turn)
    with mock.patch.object(session, "StepMeter", meter):
        options = {"steps_per_epoch": STEPS, "verbose": 0, "callbacks": [clock]}
        models[is_watched].fit(data, **options)
    if turn > 1:  # the first of each is traced
        times[is_watched].append((clock.last - clock.first) / (STEPS - 1) * 1000)
pinned.write([*times[0], *times[1]])
