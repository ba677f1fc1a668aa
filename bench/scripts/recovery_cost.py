"""What recovery adds to a step of the seed CNN's `fit`, measured inside one job.

    recovery_cost.py state SECONDS
    recovery_cost.py checkpoints SECONDS

`state`: models of the same make train by turns, a second or so each; two of them have no state
directory, so nobody keeps their state, and what they differ by is the error of the measure. Writes
ms a step: on, off, off again, on, …; of each turn the lower quartile, for what else the machine
does disturbs some steps, and what recovery does is in all of them.

`checkpoints`: epochs with and without a checkpoint take turns. Writes ms a step: with, without, …;
the mean of each epoch. The last number is the share of the time that snapshots in memory took.

Both first of elapsed time, then as many of this worker's CPU time.
"""

import os
import sys
import time
from dataclasses import replace

import cnn
import keras
import numpy as np
import pinned
import tensorflow as tf

from tfrun.engine.agree import any_worker
from tfrun.job.settings import settings
from tfrun.state import session

STEPS, SETTLED = 24, 4  # of a turn, and after how many of them the rest is taken
# A checkpoint is due every 100 steps, in the middle of every other epoch: its writing, which goes
# on beside the steps that follow, ends in the same epoch.
CHECKPOINT_STEPS = 50
WHAT, SECONDS = sys.argv[1], float(sys.argv[2])
BEGAN = time.monotonic()
SETTINGS = settings()
strategy = tf.distribute.MultiWorkerMirroredStrategy()


def made() -> keras.Model:
    with strategy.scope():
        return cnn.compiled(keras)


x, y = cnn.samples()
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch)


class Clock(keras.callbacks.Callback):
    """When each step ended: from one to the next lies all that recovery does."""

    def __init__(self):
        super().__init__()
        self.steps, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(now())

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append([now()])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs[-1].append(now())


def now() -> np.ndarray:
    """Milliseconds, elapsed and of CPU time."""
    return 1000 * np.array([time.perf_counter(), time.process_time()])


def is_over() -> bool:
    """Whether the time is; the same on all workers."""
    return any_worker(strategy, [time.monotonic() - BEGAN > SECONDS])[0]


class Until(keras.callbacks.Callback):
    """Ends the training after an even number of epochs, when the time is over."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch % 2 and is_over():
            self.model.stop_training = True


def train(model: keras.Model, epochs: int, steps: int, *others: keras.callbacks.Callback) -> Clock:
    clock = Clock()
    callbacks = [clock, *others]
    model.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
    return clock


def with_and_without_state() -> list[np.ndarray]:
    models = {"on": made(), "off": made(), "off again": made()}

    def turn(which: str) -> np.ndarray:
        folder = SETTINGS.state_dir if which == "on" else ""
        os.environ |= replace(SETTINGS, state_dir=folder).variables()
        settings.cache_clear()
        steps = np.diff(train(models[which], 1, STEPS).steps[SETTLED:], axis=0)
        return np.percentile(steps, 25, axis=0)

    for which in models:
        turn(which)  # traced
    found, number = [], 0
    while not is_over():
        number += 1
        order = list(models)[number % 3 :] + list(models)[: number % 3]
        turns = {which: turn(which) for which in order[:: 1 if number % 2 else -1]}
        found += [turns[which] for which in models]
    return found


def with_and_without_checkpoints() -> tuple[list[np.ndarray], float]:
    costs = []
    interval = session.interval

    def counted():
        found = interval(settings().snapshots)
        done = found.done
        found.done = lambda cost: (costs.append(1000 * cost), done(cost))
        return found

    session.interval = counted
    model = made()
    # The first checkpoint prepares what all others use.
    train(model, 1, CHECKPOINT_STEPS // 2)
    costs.clear()
    epochs = train(model, 10_000, CHECKPOINT_STEPS, Until()).epochs
    share = sum(costs) / (epochs[-1][1] - epochs[0][0])[0]
    found = [(end - begin) / CHECKPOINT_STEPS for begin, end in epochs[2:]]
    return [time for pair in zip(found[1::2], found[0::2], strict=True) for time in pair], share


if WHAT == "state":
    elapsed, cpu = np.transpose(with_and_without_state())
    pinned.write([*elapsed, *cpu])
else:
    pairs, share = with_and_without_checkpoints()
    elapsed, cpu = np.transpose(pairs)
    pinned.write([*elapsed, *cpu, share])
