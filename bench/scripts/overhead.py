"""Milliseconds and processor milliseconds a step of one process's `fit`, by epoch.

    overhead.py WORKLOAD

Without a strategy and on one batch that is there, so that nothing is left but the step and what
Keras, and tfrun if it is there, do around it.
"""

import sys

import clock
import keras
import pinned
import tensorflow as tf
import workloads
from workloads import PER_WORKER, STEPS

EPOCHS = 16  # the first one traces and is left out

name = sys.argv[1]
model = workloads.compiled(keras, name)
x, y = workloads.samples(name)
size = PER_WORKER[name]
data = tf.data.Dataset.from_tensors((x[:size], y[:size])).repeat()
timed = clock.of(keras, STEPS[name])
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS[name], verbose=0, callbacks=[timed])
pinned.write([*timed.times[1:], *timed.cpu[1:]])
