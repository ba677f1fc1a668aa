"""A worker without a sample of a short last batch computes with one of zeros, where it has to.

oneDNN, which TensorFlow uses on CPUs, gives the convolution of no sample the shape of its input,
and ends the process in the gradient of a max-pooling of none; `ctc_loss` of none fails. A copy
would be dear, so samples pass through as they are, and only what is empty is replaced.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfrun.engine import replica

_OF_ONEDNN = (tf.float32, tf.bfloat16, tf.float16)


def give_a_row(original):
    """A layer that is given no sample computes one of zeros, and returns none of it."""

    def call(self, inputs):
        if not _may_be_empty(inputs) or inputs.dtype not in _OF_ONEDNN:
            return original(self, inputs)
        samples = tf.shape(inputs)[0]
        return _first(original(self, _one_at_least(inputs)), samples)

    return call


def give_a_label(original):
    """`ctc_loss` likewise."""

    def ctc_loss(target, output, target_length, output_length, mask_index=0):
        given = [tf.convert_to_tensor(t) for t in (target, output, target_length, output_length)]
        if not _may_be_empty(given[1]):
            return original(target, output, target_length, output_length, mask_index)
        samples = tf.shape(given[1])[0]
        target, output, *lengths = map(_one_at_least, given)
        return _first(original(target, output, *lengths, mask_index), samples)

    return ctc_loss


def _may_be_empty(batch: Any) -> bool:
    """Whether it is a worker's part of a batch, of which it may have no sample."""
    run = replica.current()
    if run is None or not tf.is_tensor(batch) or not batch.shape.rank:
        return False
    on_cpu = "CPU" in run.context.strategy.extended.worker_devices[run.local_number]
    return on_cpu and not batch.shape[0] and run.context.num_replicas_in_sync > 1


@tf.custom_gradient
def _one_at_least(batch):
    """The batch; one sample of zeros where it is empty."""
    shape = tf.shape(batch)
    one = tf.concat([[1], shape[1:]], axis=0)
    rows = tf.cond(shape[0] > 0, lambda: batch, lambda: tf.zeros(one, batch.dtype))
    rows.set_shape([None, *batch.shape[1:]])
    return rows, lambda gradient: gradient[: shape[0]]


@tf.custom_gradient
def _first(rows, samples):
    """As many of the rows as there are samples: all, or none of one."""
    shape = tf.shape(rows)

    def gradients(gradient):
        zeros = lambda: tf.zeros(shape, gradient.dtype)  # noqa: E731
        given = tf.cond(samples > 0, lambda: gradient, zeros)
        given.set_shape(rows.shape)
        return given, None

    return rows[:samples], gradients
