"""Milliseconds a step of `fit` with the seed CNN, 64 samples a replica; worker 1 is half a core."""

import os
from pathlib import Path

import clock
import cnn
import keras
import pinned
import tensorflow as tf

if pinned.RANK == 1:
    Path(os.environ["BENCH_HALF"]).write_text(str(os.getpid()))

STEPS, EPOCHS = 50, 4  # --balance auto looks at 50 steps before it moves anything
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = cnn.compiled(keras)
x, y = cnn.samples()
timed = clock.of(keras, STEPS)
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch)
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[timed])
pinned.write(timed.times[1:])
