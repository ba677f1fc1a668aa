"""Milliseconds a step of a bare loop under TensorFlow's MultiWorkerMirroredStrategy, by epoch.

    peer_loop.py WORKLOAD

Legacy Keras makes the model and its gradients' update; there are no callbacks and no metrics.
"""

import sys

import pinned
import quantities
import tensorflow as tf
import tf_keras as keras
import workloads
from workloads import EPOCHS, PER_WORKER, STEPS

name = sys.argv[1]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
batch = PER_WORKER[name] * strategy.num_replicas_in_sync
with strategy.scope():
    model = workloads.compiled(keras, name)
x, y = workloads.samples(name)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).repeat().batch(batch)
batches = iter(strategy.experimental_distribute_dataset(data))


@tf.function
def step(inputs, labels):
    def replica(inputs, labels):
        with tf.GradientTape() as tape:
            loss = model.compiled_loss(labels, model(inputs, training=True))
            loss /= strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    strategy.run(replica, args=(inputs, labels))


times = quantities.epochs(
    lambda: step(*next(batches)), STEPS[name], EPOCHS, model.optimizer.iterations.numpy
)
pinned.write(times[1:])
