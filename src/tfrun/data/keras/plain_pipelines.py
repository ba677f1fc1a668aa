"""Reads plain `tf.data` pipelines in less time: only a worker's own rows, batches of known size.

`from_tensor_slices(arrays).shuffle(n).repeat().batch(b)` copies each sample for itself, twice, and
each worker does so for the samples of all. But none of these operations looks into a sample. So the
same ones are applied to the samples' numbers, TensorFlow shares batches of numbers out among the
workers just as it would have shared out the samples, and each worker copies the rows of its own
numbers, a batch in one go: the same samples in the same order.

`Dataset.batch(n)` without `drop_remainder` has batches of unknown size, because the last one may be
short. Under a strategy each worker then has to ask all others in each step how many samples they
have (see engine/trained_model.py): a collective, about a millisecond of a step. But where samples
never end, or come to a multiple of n, there is no short batch.

What a pipeline is made of is kept by TensorFlow in private attributes of its objects
(tensorflow/python/data/ops/*_op.py). Only this file and larger_batches.py know them. This one
leaves a pipeline as it is wherever it finds something else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf
from tensorflow.python.data.ops import (
    batch_op,
    dataset_ops,
    from_tensor_slices_op,
    prefetch_op,
    repeat_op,
    shard_op,
    shuffle_op,
    skip_op,
    take_op,
)

from tfrun.data.order.repeatable import steps_of
from tfrun.data.pipeline import map_in_this_thread
from tfrun.job.settings import settings
from tfrun.job.world import world

_FILE = tf.data.experimental.AutoShardPolicy.FILE  # numbers have no files


@functools.cache
def _again() -> dict[type, Callable[[Any, Any], Any]]:
    """What each operation is on numbers. Its names are private: another TensorFlow lacks some."""
    return {
        repeat_op._RepeatDataset: lambda node, numbers: numbers.repeat(int(node._count)),
        take_op._TakeDataset: lambda node, numbers: numbers.take(int(node._count)),
        skip_op._SkipDataset: lambda node, numbers: numbers.skip(int(node._count)),
        shard_op._ShardDataset: lambda node, numbers: numbers.shard(
            int(node._num_shards), int(node._index)
        ),
        prefetch_op._PrefetchDataset: lambda node, numbers: numbers.prefetch(
            int(node._buffer_size)
        ),
        dataset_ops._OptionsDataset: lambda node, numbers: numbers.with_options(node.options()),
        batch_op._BatchDataset: lambda node, numbers: numbers.batch(
            int(node._batch_size), drop_remainder=bool(node._drop_remainder)
        ),
        shuffle_op._ShuffleDataset: lambda node, numbers: _Shuffled(node, numbers),
    }


# A shuffle goes on with its random numbers when it is iterated again, also below another `batch`:
# so what it is on numbers is made once.
_made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
# How often somebody else than us has drawn their random numbers.
_drawn: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class ByNumbers:
    """Batches of samples' numbers, and what makes batches of samples of them.

    Attributes:
      numbers: int64 of shape [batch].
      arrays: whose rows the samples are.
      spec: the structure of a sample.
    """

    numbers: tf.data.Dataset
    arrays: list[tf.Tensor]
    spec: Any

    def read(self, numbers: tf.data.Dataset) -> Any:
        """Returns the samples of batches of numbers."""

        def rows(batch: tf.Tensor) -> Any:
            return tf.nest.pack_sequence_as(self.spec, [tf.gather(a, batch) for a in self.arrays])

        options = tf.data.Options()
        options.autotune.enabled = False  # no other thread is to copy a few rows
        return map_in_this_thread(numbers, rows).with_options(options)


def is_wanted() -> bool:
    """Whether this job reads pipelines in this way; a person can forbid it."""
    return world().in_job and settings().own_rows


def for_one(dataset: Any) -> Any:
    """Returns what a worker without a strategy reads in place of a pipeline: the same samples."""
    is_pipeline = isinstance(dataset, tf.data.Dataset) and is_wanted()
    return by_rows(dataset) if is_pipeline else dataset


def by_rows(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a pipeline for one worker that gives what `dataset` gives; itself where need be."""
    found = by_numbers(dataset)
    if found is None:
        return dataset
    made = found.read(found.numbers)
    steps = _chain(dataset)
    last: Any = next(step for step in steps if type(step) is not dataset_ops._OptionsDataset)
    # What was read ahead are numbers now.
    is_ahead = isinstance(last, prefetch_op._PrefetchDataset)
    batches: Any = last._buffer_size if is_ahead else 0
    return made.prefetch(int(batches)) if is_ahead else made


def by_numbers(dataset: Any) -> ByNumbers | None:
    """Returns the pipeline of numbers for a pipeline of samples; None where there is none."""
    if not tf.executing_eagerly():
        return None
    try:
        *nodes, source = _chain(dataset)
        is_plain = _is_in_memory(source) and all(type(node) in _again() for node in nodes)
        batches = sum(type(node) is batch_op._BatchDataset for node in nodes)
        policy = dataset.options().experimental_distribute.auto_shard_policy
        if not is_plain or batches != 1 or policy == _FILE or any(node in _drawn for node in nodes):
            return None
        numbers: Any = _numbers(source)
        for node in reversed(nodes):
            if node not in _made:
                _made[node] = _again()[type(node)](node, numbers)
            numbers = _made[node]
    except AttributeError:  # another TensorFlow has other names
        return None
    found = ByNumbers(numbers=numbers, arrays=source._tensors, spec=source.element_spec)
    of_batch: list[Any] = numbers.element_spec.shape
    spec = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([*of_batch, *leaf.shape], leaf.dtype), found.spec
    )
    same = spec == dataset.element_spec and numbers.cardinality() == dataset.cardinality()
    return found if same else None


def shared_by_batch(dataset: Any) -> Any:
    """Returns a pipeline whose batches all workers share, where the script has not said otherwise.

    TensorFlow would give each worker files of its own: other batches than on one, and an error
    where there are fewer files than workers.
    """
    policies = tf.data.experimental.AutoShardPolicy
    if dataset.options().experimental_distribute.auto_shard_policy != policies.AUTO:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA
    return dataset.with_options(options)


def _chain(dataset: Any) -> Iterator[Any]:
    """Yields the operations of a pipeline from the last one on, as far as each has one input."""
    yield dataset
    while len(inputs := dataset._inputs()) == 1:
        (dataset,) = inputs
        yield dataset


def _is_in_memory(source: Any) -> bool:
    """Whether it gives the rows of dense arrays. Strings may be files, which are shared out."""
    if type(source) is not from_tensor_slices_op._TensorSliceDataset:
        return False
    leaves = tf.nest.flatten(source.element_spec)
    return len(leaves) == len(source._tensors) and all(
        isinstance(leaf, tf.TensorSpec)
        and leaf.dtype == array.dtype != tf.string
        and leaf.shape == array.shape[1:]
        for leaf, array in zip(leaves, source._tensors, strict=True)
    )


def _numbers(source: Any) -> tf.data.Dataset:
    if source not in _made:
        _made[source] = tf.data.Dataset.range(source._tensors[0].shape[0])
    return _made[source]


class _Shuffled(dataset_ops.UnaryUnchangedStructureDataset):
    """As `Dataset.shuffle`, which would draw another seed than the one that `node` has drawn.

    Between it and a `repeat` nothing may stand: TensorFlow makes one operation of both, which goes
    on into the next epoch in another order.
    """

    def __init__(self, node: Any, numbers: Any) -> None:
        self._input_dataset = numbers
        variant = tf.raw_ops.ShuffleDatasetV3(
            input_dataset=numbers._variant_tensor,
            buffer_size=node._buffer_size,
            seed=node._seed,
            seed2=node._seed2,
            seed_generator=tf.raw_ops.DummySeedGenerator(),
            output_types=[tf.int64],
            output_shapes=[numbers.element_spec.shape],
            reshuffle_each_iteration=node._reshuffle_each_iteration,
        )
        super().__init__(numbers, variant)


def note(dataset: Any) -> None:
    """Notes that the shuffles of a pipeline draw their random numbers for somebody else than us."""
    for node in steps_of(dataset):
        # By name: that there is no such class in another TensorFlow is no reason to fail here.
        if type(node).__name__ == "_ShuffleDataset" and node._reshuffle_each_iteration:
            _drawn[node] = _drawn.get(node, 0) + 1


def drawn(dataset: Any) -> int:
    """How often others have drawn an order from the shuffles of a pipeline that we read, too."""
    found = (node for node in steps_of(dataset) if node not in _made)
    return sum(_drawn.get(node, 0) for node in found)


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
    if not _has_rows(dataset):
        return dataset
    cardinality: Any = dataset.cardinality()
    if int(cardinality) != tf.data.INFINITE_CARDINALITY:
        return dataset  # TensorFlow has an empty batch in reserve for whoever has none left
    try:
        size = _size(dataset)
    except AttributeError:  # another TensorFlow has other names
        size = None
    return dataset if not size or size % replicas else _AllFull(dataset, size)


def is_by_batch(dataset: Any, *, has_files: bool) -> bool:
    """Whether all workers share each batch of a pipeline; else each may have its own, or more."""
    policies = tf.data.experimental.AutoShardPolicy
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return policy == policies.DATA or (policy == policies.AUTO and not has_files)


def has_one_size(dataset: Any, replicas: int) -> bool:
    """Whether a pipeline says that each replica has as many samples of each batch as any other.

    Then all of them come to the end of it together: TensorFlow need not ask in each step who has
    any left, and the step knows how many a replica has, as on one worker (`x.shape[0]`).

    Args:
      dataset: of global batches.
      replicas: that share each of them.
    """
    if not _has_rows(dataset):
        return False
    sizes = {leaf.shape[0] for leaf in tf.nest.flatten(dataset.element_spec)}
    return len(sizes) == 1 and all(size and size % replicas == 0 for size in sizes)


def _has_rows(dataset: Any) -> bool:
    """Whether all parts of an element are dense tensors of some rows."""
    leaves = tf.nest.flatten(dataset.element_spec)
    return all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in leaves)


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
