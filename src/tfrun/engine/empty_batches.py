"""Lets a worker without a sample in a short batch trace its step for any number of samples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def of_any_size(nest: Any) -> Any:
    """Returns `nest`, while a function is traced, with the size of batches without a row unknown.

    A batch that is taken outside of the step (in `predict`, and in loops over a distributed
    dataset) has a known size, and where that is 0, layers take it for something else: Keras's
    `ops.add` looks for a bias in what it adds, by dimensions of at most 1, finds one in an
    array of shape (0, units), and LSTM and GRU fail.
    """
    if tf.executing_eagerly():
        return nest
    return tf.nest.map_structure(_of_any_size, nest)


def _of_any_size(leaf: Any) -> Any:
    if not isinstance(leaf, tf.Tensor) or not leaf.shape.rank or leaf.shape[0] != 0:
        return leaf
    return tf.compat.v1.placeholder_with_default(leaf, [None, *leaf.shape[1:]])
