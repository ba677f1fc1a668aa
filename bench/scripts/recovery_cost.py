"""What recovery adds to a step of the seed CNN's `fit`, measured inside one job.

    recovery_cost.py state PAIRS
    recovery_cost.py checkpoints PAIRS

`state`: two models of the same make train by turns; one of them has no state directory, so nobody
keeps its state. `checkpoints`: epochs with and without a checkpoint take turns. Writes ms a step:
with, without, with, …; first of elapsed time, then as many of this worker's CPU time.
"""

import os
import sys
import time

import cnn
import keras
import numpy as np
import pinned
import tensorflow as tf

STEPS, EPOCHS = 60, 2
# A checkpoint is due every 200 steps, in the middle of every other epoch: its writing, which goes
# on beside the steps that follow, ends in the same epoch.
CHECKPOINT_STEPS = 100
WHAT, PAIRS = sys.argv[1], int(sys.argv[2])
STATE = os.environ["TFRUN_STATE_DIR"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()


def made() -> keras.Model:
    with strategy.scope():
        return cnn.compiled(keras)


x, y = cnn.samples()
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(cnn.SAMPLES).repeat().batch(batch)


class Clock(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.times = []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = now()

    def on_epoch_end(self, epoch, logs=None):
        self.times.append((now() - self.start) / self.params["steps"] * 1000)


def now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def train(model: keras.Model, epochs: int, steps: int) -> list[np.ndarray]:
    """Milliseconds a step of each epoch, elapsed and of CPU time."""
    clock = Clock()
    model.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=[clock])
    return clock.times


def with_and_without_state() -> list[np.ndarray]:
    models = {"on": made(), "off": made()}

    def turn(which: str) -> np.ndarray:
        if which == "on":
            os.environ["TFRUN_STATE_DIR"] = STATE
        else:
            os.environ.pop("TFRUN_STATE_DIR", None)
        return np.mean(train(models[which], EPOCHS, STEPS), axis=0)

    for which in models:
        turn(which)  # traced
    pairs = []
    for number in range(PAIRS):
        order = ("on", "off") if number % 2 else ("off", "on")
        pairs.append({which: turn(which) for which in order})
    return [pair[which] for pair in pairs for which in ("on", "off")]


def with_and_without_checkpoints() -> list[np.ndarray]:
    model = made()
    train(model, 1, CHECKPOINT_STEPS // 2)
    # The first checkpoint prepares what all others use.
    found = train(model, 2 * (PAIRS + 1), CHECKPOINT_STEPS)[2:]
    return [time for pair in zip(found[1::2], found[0::2], strict=True) for time in pair]


measure = {"state": with_and_without_state, "checkpoints": with_and_without_checkpoints}[WHAT]
elapsed, cpu = np.transpose(measure())
pinned.write([*elapsed, *cpu])
