"""Milliseconds and processor milliseconds a step of one process's `fit`, by epoch.

    overhead.py WORKLOAD

Without a strategy and on one batch that is there, so that nothing is left but the step and what
Keras, and tfrun if it is there, do around it.
"""

import sys
import time

import keras
import pinned
import tensorflow as tf
import workloads
from workloads import PER_WORKER, STEPS

EPOCHS = 16  # the first one traces and is left out


class Clock(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.elapsed: list[float] = []
        self.cpu: list[float] = []

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        elapsed, cpu = self.began
        self.elapsed.append((time.perf_counter() - elapsed) / STEPS[name] * 1000)
        self.cpu.append((time.process_time() - cpu) / STEPS[name] * 1000)


name = sys.argv[1]
model = workloads.compiled(keras, name)
x, y = workloads.samples(name)
size = PER_WORKER[name]
data = tf.data.Dataset.from_tensors((x[:size], y[:size])).repeat()
clock = Clock()
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS[name], verbose=0, callbacks=[clock])
pinned.write([*clock.elapsed[1:], *clock.cpu[1:]])
