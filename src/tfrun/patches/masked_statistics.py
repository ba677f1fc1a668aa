"""`BatchNormalization(synchronized=True)` of what has a mask takes the statistics of all replicas.

Keras does so by `ops.moments`, which knows no mask. Where there is one it computes them itself, of
each replica's own part, and says nothing.
"""

from __future__ import annotations

import keras
import tensorflow as tf


def synchronize(original):
    """As Keras computes them of a mask, but of sums over all replicas."""

    def _moments(self, inputs, mask):
        context = tf.distribute.get_replica_context()
        if mask is None or not self.synchronized or context is None:
            return original(self, inputs, mask)
        if context.num_replicas_in_sync == 1:
            return original(self, inputs, mask)
        all_reduce = context.all_reduce

        def summed(*values):
            own = [tf.reduce_sum(one, self._reduction_axes, keepdims=True) for one in values]
            return all_reduce(tf.distribute.ReduceOp.SUM, own)

        counts = tf.broadcast_to(tf.cast(mask, tf.bool)[..., None], tf.shape(inputs))
        total, count = summed(tf.where(counts, inputs, 0), tf.cast(counts, inputs.dtype))
        count += keras.backend.epsilon()
        mean = total / count
        (squares,) = summed(tf.square(tf.where(counts, inputs - mean, 0)))
        return tf.squeeze(mean), tf.squeeze(squares / count)

    return _moments
