"""Milliseconds a step of `fit` with the seed CNN, 64 samples a worker, by epoch."""

import sys

import clock
import cnn
import pinned
import tensorflow as tf

if sys.argv[1] == "legacy":
    import tf_keras as keras
else:
    import keras

STEPS, EPOCHS = 60, 6
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = cnn.compiled(keras)
x, y = cnn.samples()
batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(cnn.SAMPLES).repeat().batch(batch)

timed = clock.of(keras, STEPS)
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[timed])
pinned.write(timed.times[1:])
