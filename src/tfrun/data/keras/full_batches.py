"""Tells TensorFlow the batch size of data whose batches are all full.

`Dataset.batch(n)` without `drop_remainder` has batches of unknown size, because the last one may be
short. Under a strategy each worker then has to ask all others in each step how many samples they
have (see engine/trained_model.py): a collective, about a millisecond of a step. But where samples
never end, or come to a multiple of n, there is no short batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import (
    batch_op,
    dataset_ops,
    prefetch_op,
    repeat_op,
    shuffle_op,
    skip_op,
    take_op,
)


class _AllFull(dataset_ops.UnaryDataset):
    """The same dataset with batches of a known size, which TensorFlow checks as they come."""

    def __init__(self, dataset: Any, size: int) -> None:
        self._spec = tf.nest.map_structure(
            lambda leaf: tf.TensorSpec([size, *leaf.shape[1:]], leaf.dtype), dataset.element_spec
        )
        super().__init__(dataset, dataset._variant_tensor)

    @property
    def element_spec(self) -> Any:
        return self._spec


def with_known_size(dataset: Any, replicas: int) -> Any:
    """Returns an endless pipeline with batches of a static size if all are full, else itself.

    Args:
      dataset: of global batches.
      replicas: that share each of them; only if all get as much does nobody have to ask.
    """
    if not isinstance(dataset, tf.data.Dataset) or not tf.executing_eagerly():
        return dataset
    leaves = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in leaves):
        return dataset
    cardinality: Any = dataset.cardinality()
    if int(cardinality) != tf.data.INFINITE_CARDINALITY:
        return dataset  # TensorFlow has an empty batch in reserve for whoever has none left
    try:
        size = _size(dataset)
    except AttributeError:  # another TensorFlow has other names
        size = None
    return dataset if not size or size % replicas else _AllFull(dataset, size)


def _size(dataset: Any) -> int | None:
    """The size of all batches; None where some may be short."""
    node: Any = dataset
    keep_size = (
        *(dataset_ops._OptionsDataset, prefetch_op._PrefetchDataset, repeat_op._RepeatDataset),
        *(shuffle_op._ShuffleDataset, skip_op._SkipDataset, take_op._TakeDataset),
    )
    while isinstance(node, keep_size):
        node = node._input_dataset
    if not isinstance(node, (batch_op._BatchDataset, batch_op._ParallelBatchDataset)):
        return None
    found: Any = node._batch_size, node._input_dataset.cardinality()
    size, samples = map(int, found)
    is_full = samples == tf.data.INFINITE_CARDINALITY or (samples > 0 and samples % size == 0)
    return size if is_full else None
