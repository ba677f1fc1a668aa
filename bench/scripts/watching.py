"""What watches a job: its time in a step, and whole steps of `fit` with and without it, in turns.

The elapsed time of steps tells apart no less than a percent on a machine with few cores. So what
watches is timed itself: the meter's calls, by a clock around each; the clocks in the graph and the
look at the connections, by many in a row; the agents and the controller, by their processor time.
"""

import contextlib
import os
import sys
import time
from unittest import mock

import cnn
import keras
import numpy as np
import pinned
import psutil
import tensorflow as tf

import tfrun
from tfrun.engine import step_clock
from tfrun.train import fit, network_waits
from tfrun.train.step_meter import StepMeter

STEPS, ROUNDS = int(sys.argv[2]), int(sys.argv[3])
CLOCKS = 4  # in a step of `fit`: its beginning, its whole, the wait for gradients, that for input
SAMPLES_PER_SECOND = 1 / network_waits.SAMPLE_SECONDS


class Clock(keras.callbacks.Callback):
    """Between the ends of the first step and the last one: elapsed, and the worker's processor."""

    def on_epoch_begin(self, epoch, logs=None):
        self.first = None

    def on_train_batch_end(self, batch, logs=None):
        self.last = np.array([time.perf_counter(), time.process_time()])
        self.first = self.last if self.first is None else self.first


class Nothing:
    """In place of the meter."""

    def __init__(self, *args, **kwargs):
        pass

    def begins(self, *args, **kwargs):
        pass

    def aside(self, kind):
        return contextlib.nullcontext()

    returned = ended = rests = closes = evaluation_begins = evaluation_ends = begins


class Timed(StepMeter):
    """The meter, and how long its calls have taken."""

    seconds, steps = 0.0, 0

    def begins(self):
        began = time.perf_counter()
        super().begins()
        Timed.seconds += time.perf_counter() - began

    def returned(self, steps=1):
        began = time.perf_counter()
        super().returned(steps)
        Timed.steps += steps
        Timed.seconds += time.perf_counter() - began

    def ended(self, **place):
        began = time.perf_counter()
        super().ended(**place)
        Timed.seconds += time.perf_counter() - began


def small():
    made = keras.Sequential(
        [keras.layers.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    )
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made


def clock_seconds(many: int = 200) -> float:
    """One clock in a graph, as a step has some."""
    total = tf.Variable(tf.zeros([], tf.float64), trainable=False)

    @tf.function
    def clocks(x):
        for _ in range(many):
            since = step_clock._when([x])
            with tf.control_dependencies([since]):
                step_clock._add(total, since, step_clock._when([since]))

    given = tf.constant(0.0)
    clocks(given)
    return min(timed(lambda: clocks(given)) for _ in range(5)) / many


def sample_seconds(many: int = 50) -> float:
    """One look at the connections, which on one machine are all within it."""
    looks = network_waits.Network({"127.0.0.1"})

    def look():
        for _ in range(many):
            looks._sampled = 0.0
            looks.sample()

    look()
    return timed(look) / many


def timed(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def tfruns() -> list[psutil.Process]:
    """The launcher and the agent: what this process comes from, up to the benchmark."""
    above = psutil.Process(os.getppid())
    return [p for p in (above, *above.parents()) if any("tfrun" in w for w in p.cmdline()[:4])]


def used(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


strategy = tfrun.strategy()
with strategy.scope():
    models = [small() if sys.argv[1] == "small" else cnn.compiled(keras) for _ in range(2)]
if sys.argv[1] == "small":
    x = np.random.default_rng(0).random((4096, 64), np.float32)
    y = x[:, :10]
else:
    x, y = cnn.samples()
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
clock, times, others = Clock(), ([], []), [np.zeros(2), np.zeros(2)]
watched, above = strategy.step_clock, tfruns()
for turn in range(2 * ROUNDS + 2):
    is_watched = (turn + turn // 2) % 2 == 0  # first one, then the other goes first
    strategy.step_clock = watched if is_watched else None
    meter = Timed if is_watched else Nothing
    data = tfrun.Dataset.from_arrays((x, y), batch_size=batch, shuffle=True, seed=turn)
    before = np.array([time.perf_counter(), used(above)])
    with mock.patch.object(fit, "StepMeter", meter):
        options = {"steps_per_epoch": STEPS, "verbose": 0, "callbacks": [clock]}
        models[is_watched].fit(data, **options)
    if turn > 1:  # the first of each is traced
        times[is_watched].append((clock.last - clock.first) / (STEPS - 1) * 1000)
        others[is_watched] += np.array([time.perf_counter(), used(above)]) - before
    else:
        Timed.seconds = Timed.steps = 0
step = float(np.median([elapsed for elapsed, _ in times[1]])) / 1000
looked = sample_seconds() * min(SAMPLES_PER_SECOND, 1 / step) * step
parts = [Timed.seconds / Timed.steps, CLOCKS * clock_seconds(), looked]
shares = [cpu / seconds for seconds, cpu in others]
pinned.write([len(above), *shares, *parts, *np.concatenate([*times[0], *times[1]]).tolist()])
