"""Makes the batches of a script's `tf.data` pipeline larger.

Where a `batch` stands last, or only `repeat`, `prefetch` and options behind it, it is made again:
the samples are those that a script with this batch gives. Where something else is done to batches,
that goes on with the small ones, of which larger ones are put together.

What a pipeline is made of is private to TensorFlow, as told in plain_pipelines.py.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import tensorflow as tf
from tensorflow.python.data.ops import (
    batch_op,
    dataset_ops,
    padded_batch_op,
    prefetch_op,
    repeat_op,
)

# As told by their names: another TensorFlow lacks some.
_KEEP_SIZE = (
    *("AssertCardinality", "Cache", "Map", "Options", "ParallelMap", "Prefetch", "Repeat"),
    *("Shuffle", "Take"),
)


class Larger(NamedTuple):
    """A pipeline whose batches are made of several of the script's.

    Attributes:
      dataset: the pipeline.
      batch: samples of a batch of the script's.
    """

    dataset: tf.data.Dataset
    batch: int


# A pipeline that is read again goes on with its shuffles: so it is made once.
_made: WeakKeyDictionary[Any, tuple[int, Larger]] = WeakKeyDictionary()


def larger(dataset: tf.data.Dataset, times: int, batch: int | None) -> Larger | None:
    """Returns the pipeline with batches of `times` as many samples; None where it has no such.

    Args:
      dataset: with batches.
      times: of them make one.
      batch: their size; None where TensorFlow does not say.
    """
    known = _made.get(dataset)
    if known is None or known[0] != times:
        batch = batch or size_of(dataset, through_maps=True)
        made = None if batch is None else _larger(dataset, times, batch)
        if batch is None or made is None:
            return None
        known = _made[dataset] = times, Larger(made, batch)
    return known[1]


def size_of(dataset: Any, *, through_maps: bool = False) -> int | None:
    """Returns the batch that a step of the pipeline states, which later ones keep; None for none.

    Args:
      dataset: a pipeline.
      through_maps: take a `map` for one that keeps it.
    """
    steps, node = _behind_batch(dataset)
    stated: Any = getattr(node, "_batch_size", getattr(node, "_batch_sizes", None))
    if stated is None or stated.shape.rank or not tf.executing_eagerly():
        return None
    through = through_maps or not any(step.endswith("Map") for step in steps)
    return int(stated) if through else None


def _behind_batch(dataset: Any) -> tuple[list[str], Any]:
    """The kinds of steps behind a pipeline's last `batch`, and that; None where there is none."""
    steps, node = [], dataset
    while node is not None and not {"_batch_size", "_batch_sizes"} & vars(node).keys():
        kind = type(node).__name__.strip("_").removesuffix("Dataset")
        if kind not in _KEEP_SIZE:
            return steps, None
        steps.append(kind)
        node = getattr(node, "_input_dataset", None)
    return steps, node


def _larger(dataset: Any, times: int, batch: int) -> Any | None:
    behind = []
    try:
        while (again := _again(dataset)) is not None:
            behind.append(again)
            dataset = dataset._input_dataset
        made = _batched(dataset, times)
    except AttributeError:  # another TensorFlow has other names
        made = None
    if made is None:
        made = _put_together(dataset, times, batch)
    for again in reversed(behind):
        made = None if made is None else again(made)
    return made


def _again(node: Any) -> Any | None:
    """What does to a pipeline as this step does; None for others."""
    match node:
        case dataset_ops._OptionsDataset():
            return lambda made: made.with_options(node.options())
        case prefetch_op._PrefetchDataset():
            ahead: Any = node._buffer_size
            return lambda made: made.prefetch(int(ahead))
        case repeat_op._RepeatDataset():
            count: Any = node._count
            return lambda made: made.repeat(int(count))
    return None


def _batched(node: Any, times: int) -> Any | None:
    match node:
        case batch_op._BatchDataset():
            make = node._input_dataset.batch
        case batch_op._ParallelBatchDataset():
            make = functools.partial(
                node._input_dataset.batch,
                num_parallel_calls=_number(node._num_parallel_calls),
                deterministic={"true": True, "false": False}.get(node._deterministic),
            )
        case padded_batch_op._PaddedBatchDataset():
            make = functools.partial(
                node._input_dataset.padded_batch,
                padded_shapes=node._padded_shapes,
                padding_values=node._padding_values,
            )
        case _:
            return None
    return make(times * _number(node._batch_size), drop_remainder=bool(node._drop_remainder))


def _number(value: Any) -> int:
    return int(value)


def _put_together(dataset: Any, times: int, batch: int) -> Any | None:
    """Larger batches of what small ones have become; None where these may not fit together."""
    leaves = tf.nest.flatten(dataset.element_spec)
    fit = all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.rank and None not in leaf.shape[1:]
        for leaf in leaves
    )
    if not fit:
        return None
    # Of a known size is what drops a short batch.
    drops = all(leaf.shape[0] is not None for leaf in leaves)
    count = int(dataset.cardinality())
    if count >= 0:
        count = count // times if drops else -(-count // times)
    steps, node = _behind_batch(dataset)
    # Of several passes each may end with a short batch.
    is_known = count == tf.data.INFINITE_CARDINALITY or drops or (node and "Repeat" not in steps)
    if not drops:
        dataset = dataset.map(functools.partial(_checked, batch))
    made = dataset.rebatch(times * batch, drops)
    is_known = is_known and count != tf.data.UNKNOWN_CARDINALITY
    return made.apply(tf.data.experimental.assert_cardinality(count)) if is_known else made


def _checked(batch: int, *element: Any) -> Any:
    """A `map` may have made several samples of each: then the batch is another one than stated."""
    text = (
        f"TFRUN-107: --scale-batch counts on batches of {batch} samples, as the pipeline's `batch` "
        "says, but a later step makes them larger. Make larger batches in the script, and leave "
        "out --scale-batch"
    )
    sizes = [tf.shape(leaf)[0] for leaf in tf.nest.flatten(element)]
    with tf.control_dependencies([tf.debugging.assert_less_equal(sizes, batch, text)]):
        same = tf.nest.map_structure(tf.identity, element)
    return same if len(same) > 1 else same[0]
