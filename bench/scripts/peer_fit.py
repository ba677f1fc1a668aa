"""Milliseconds a step of `fit`, by epoch.

    peer_fit.py WORKLOAD keras3 | legacy | plain [tfrun.Dataset]

TensorFlow's strategy, or tfrun's in its place; each worker draws its part of a global batch. plain
is Keras 3 in one process, without a strategy.
"""

import sys

import clock
import pinned
import quantities
import tensorflow as tf
import workloads
from workloads import EPOCHS, PER_WORKER, STEPS

if sys.argv[2] == "legacy":
    import tf_keras as keras
else:
    import keras

name = sys.argv[1]
if sys.argv[2] == "plain":
    strategy = tf.distribute.get_strategy()
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = workloads.compiled(keras, name)
x, y = workloads.samples(name)
batch = PER_WORKER[name] * strategy.num_replicas_in_sync
if sys.argv[3:] == ["tfrun.Dataset"]:
    import tfrun

    data = tfrun.Dataset.from_arrays((x, y), batch_size=batch, shuffle=True)
else:
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).repeat().batch(batch)

model.fit(data, epochs=1, steps_per_epoch=1, verbose=0)
quantities.first_step()
timed = clock.of(keras, STEPS[name])
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS[name], verbose=0, callbacks=[timed])
pinned.write(timed.times[1:])
