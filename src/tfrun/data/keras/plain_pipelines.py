"""What `fit` and strategies make of a plain `tf.data` pipeline: the same samples, in less time."""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import input_lib

from tfrun.data.keras import own_rows
from tfrun.data.keras.full_batches import with_known_size
from tfrun.data.order import repeatable
from tfrun.data.pipeline import map_in_this_thread
from tfrun.job.world import world

VARIABLE = "TFRUN_OWN_ROWS"


def install() -> None:
    """Has distributed datasets read them by rows, and know the size of their batches; once.

    tensorflow/python/distribute/input_lib.py rebatches a dataset and shards it by worker there.
    """
    cls = input_lib.DistributedDataset
    original = cls._create_cloned_datasets_from_dataset
    if hasattr(original, "__wrapped__"):
        return
    own_rows.note_iterations()

    @functools.wraps(original)
    def _create_cloned_datasets_from_dataset(
        self, dataset, input_context, input_workers, strategy, num_replicas_in_sync
    ):
        found = None
        on_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
        if _is_wanted() and not on_servers:
            found = own_rows.by_numbers(dataset)
            dataset = dataset if found is None else found.numbers
            dataset = with_known_size(dataset, num_replicas_in_sync or 1)
        original(self, dataset, input_context, input_workers, strategy, num_replicas_in_sync)
        if found is not None:
            self._cloned_datasets = [found.read(numbers) for numbers in self._cloned_datasets]
        elif num_replicas_in_sync != 1 and repeatable.calls_python(dataset):
            self._cloned_datasets = [_copied(cloned) for cloned in self._cloned_datasets]

    cls._create_cloned_datasets_from_dataset = _create_cloned_datasets_from_dataset


def _copied(dataset: tf.data.Dataset) -> Any:
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
    is_pipeline = isinstance(dataset, tf.data.Dataset) and _is_wanted()
    return own_rows.by_rows(dataset) if is_pipeline else dataset


def _is_wanted() -> bool:
    return world().in_job and os.environ.get(VARIABLE) != "0"
