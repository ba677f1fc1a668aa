"""Speeds up plain `tf.data` pipelines in `fit` and under strategies: the same samples, sooner."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfrun.data.keras import own_rows
from tfrun.data.pipeline import map_in_this_thread
from tfrun.job.settings import settings
from tfrun.job.world import world


def copied(dataset: tf.data.Dataset) -> Any:
    """Returns the pipeline with tensors of its own, which TensorFlow may write to.

    TensorFlow (2.21) takes numpy arrays that Python code gives it as they are, if they lie well in
    memory. Operations do not write to them, but they do to slices of them: `SubBuffer` in
    tensorflow/core/framework/tensor.cc owns its memory, whoever its root is. A worker's part of a
    batch is such a slice, so that a training step changed the script's own labels.
    """

    def copy(*element: Any) -> Any:
        leaves = tf.nest.flatten(element, expand_composites=True)
        copies = [leaf if leaf.dtype == tf.variant else _copy(leaf) for leaf in leaves]
        packed = tf.nest.pack_sequence_as(element, copies, expand_composites=True)
        return packed if len(packed) > 1 else packed[0]

    return map_in_this_thread(dataset, copy)


def _copy(leaf: tf.Tensor) -> tf.Tensor:
    copied = tf.raw_ops.DeepCopy(x=leaf)  # `tf.identity`, or adding 0, would be optimized away
    copied.set_shape(leaf.shape)
    return copied


def for_one(dataset: Any) -> Any:
    """Returns what a worker without a strategy reads in place of a pipeline."""
    is_pipeline = isinstance(dataset, tf.data.Dataset) and is_wanted()
    return own_rows.by_rows(dataset) if is_pipeline else dataset


def is_wanted() -> bool:
    return world().in_job and settings().own_rows
