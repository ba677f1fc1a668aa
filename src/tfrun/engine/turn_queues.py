"""Queues in which replicas of one worker wait for their turn, as operations of TensorFlow."""

from __future__ import annotations

import itertools

import tensorflow as tf

_numbers = itertools.count()


def make() -> tf.Tensor:
    """A queue of truth values, as its handle."""
    name = f"tfrun-turn-{next(_numbers)}"  # without one they all are the same
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.raw_ops.FIFOQueueV2(
            component_types=[tf.bool], shapes=[()], capacity=2, shared_name=name
        )


def put(queue: tf.Tensor, goes_on: bool) -> None:
    """Wakes who waits there; it ends if it does not go on."""
    with tf.device("CPU:0"):
        tf.raw_ops.QueueEnqueueV2(handle=queue, components=[tf.constant(goes_on)])


def empty(queue: tf.Tensor) -> None:
    """Takes out what nobody has waited for."""
    with tf.device("CPU:0"):
        for _ in range(int(tf.raw_ops.QueueSizeV2(handle=queue))):
            tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.bool])
