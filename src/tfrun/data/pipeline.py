"""The `tf.data` pipeline that reads one worker's share of each global batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data.permutation import Order, sample_keys
from tfrun.data.shards import constant_share, share_of_step, steps_per_epoch
from tfrun.data.sources import Source, Tolerant, batch_spec
from tfrun.data.stream import StreamSource, check_batch

FOREVER = 1 << 62
GROUP, GROUP_BYTES = 16, 4 << 20


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A function of one sample.

    Attributes:
      function: takes the components of a sample, and `seed`, int64 of shape [2], if `is_random`.
      is_random: whether it takes a seed.
    """

    function: Callable[..., Any]
    is_random: bool


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The replicas that one pipeline feeds: `count` of `total`, from number `first`."""

    first: int = 0
    count: int = 1
    total: int = 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that decides what the pipeline yields, but for the place to start and the replicas.

    Attributes:
      source: where the samples come from; a `Tolerant` leaves out what it cannot read.
      order: the order of each epoch.
      batch: samples in a global batch.
      stages: functions of one sample, in turn.
      prefetch: batches that are read ahead.
      failures: errors of the source, for whoever meets TensorFlow's error about them.
    """

    source: Source | Tolerant
    order: Order
    batch: int
    stages: tuple[Stage, ...] = ()
    prefetch: int = 2
    failures: list[Exception] = field(default_factory=list, compare=False)

    @property
    def steps(self) -> int:
        """Global batches of an epoch."""
        return steps_per_epoch(self.order.samples, self.batch)

    @contextlib.contextmanager
    def noting_failures(self) -> Iterator[None]:
        """Keeps an error of the block, of which TensorFlow passes on no more than the text."""
        try:
            yield
        except Exception as error:
            self.failures.append(error)
            raise

    def share(self, step: int, rank: int, total: int) -> tuple[int, int]:
        """Returns the positions [begin, end) in the epoch's order of `rank`'s part of a batch."""
        return share_of_step(step, self.order.samples, self.batch, rank, total)


def batches(plan: Plan, replicas: Replicas, start: int, stop: int) -> tf.data.Dataset:
    """Returns the batches of these replicas for the steps [start, stop), counted over epochs.

    Args:
      plan: what to read.
      replicas: for whom. Each step yields one element for each of them, in order; one without a
        sample in that step gets a batch of zero samples.
      start: first step, epoch * steps of an epoch + step in the epoch.
      stop: the step before which to end; `FOREVER` for a stream without an end.
    """
    elements = _elements(plan, replicas, start, stop)
    size = None if isinstance(plan.source, Tolerant) else _static_size(plan, replicas.total)
    spec = batch_spec(plan.source.spec, size)
    reader = _Reader(plan, replicas)

    @tf.autograph.experimental.do_not_convert
    def read(element, batch=None):
        if batch is None:
            *leaves, keys = tf.numpy_function(reader.read, [element], reader.dtypes)
        else:
            leaves, keys = reader.slice(element, batch)
        specs = tf.nest.flatten(spec)
        for leaf, leaf_spec in zip(leaves, specs, strict=True):
            leaf.set_shape(leaf_spec.shape)
        keys.set_shape([size, len(plan.stages), 2])
        return tf.nest.pack_sequence_as(spec, leaves), keys

    if plan.stages:
        made = _map_samples(elements, read, plan, size)
    elif not isinstance(plan.source, StreamSource):
        made = _in_groups(reader, spec, start * replicas.count, stop * replicas.count)
    else:
        made = _map_in_this_thread(elements, lambda *element: read(*element)[0])
    made = made.prefetch(plan.prefetch) if plan.prefetch else made
    return made.with_options(_options())


def as_endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Adds batches without samples for ever, for a reader that knows itself when to stop.

    TensorFlow's distributed iterators ask all workers before each step of finite data whether
    any has some left: a collective in each step, for what every worker knows here.
    """
    return dataset.concatenate(_zeros(dataset.element_spec).repeat())


class _Reader:
    def __init__(self, plan: Plan, replicas: Replicas) -> None:
        self._plan, self._replicas = plan, replicas
        self.dtypes = [leaf.dtype for leaf in tf.nest.flatten(plan.source.spec)] + [tf.int64]

    def read(self, element: np.int64) -> list[NDArray]:
        """Returns the arrays of one batch and the seeds [k, stages, 2] of its samples."""
        plan = self._plan
        number, replica = divmod(int(element), self._replicas.count)
        epoch, step = divmod(number, plan.steps)
        begin, end = plan.share(step, self._replicas.first + replica, self._replicas.total)
        indices = plan.order.indices(epoch, begin, end)
        with plan.noting_failures():
            if isinstance(plan.source, Tolerant):
                indices, leaves = plan.source.readable(indices)
            else:
                leaves = plan.source.read(indices)
        return [*leaves, self._keys(indices, epoch)]

    @property
    def group(self) -> int:
        """Elements that are read in one call, so that its cost (0.1 ms) hardly counts."""
        leaves = tf.nest.flatten(self._plan.source.spec)
        sample = sum((leaf.shape.num_elements() or 1) * _item_bytes(leaf.dtype) for leaf in leaves)
        element = sample * self._plan.batch / self._replicas.total
        return int(min(max(GROUP_BYTES // max(element, 1), 1), GROUP))

    def read_group(self, first: np.int64, stop: np.int64) -> list[NDArray]:
        """Returns the rows of the elements [first, stop) and where each element's rows begin."""
        plan = self._plan
        parts = []
        for element in range(int(first), int(stop)):
            number, replica = divmod(element, self._replicas.count)
            epoch, step = divmod(number, plan.steps)
            rank = self._replicas.first + replica
            begin, end = plan.share(step, rank, self._replicas.total)
            parts.append(plan.order.indices(epoch, begin, end))
        with plan.noting_failures():
            if isinstance(plan.source, Tolerant):
                parts = [plan.source.readable(part)[0] for part in parts]
            source = plan.source.source if isinstance(plan.source, Tolerant) else plan.source
            leaves = source.read(np.concatenate(parts))
        bounds = np.cumsum([0, *(len(part) for part in parts)])
        return [*leaves, bounds.astype(np.int64)]

    def slice(self, element, batch):
        """Returns the leaves and seeds of these replicas' part of a global batch, as tensors."""
        number, leaves = batch[0], tf.nest.flatten(batch[1])
        bounds = [element, number, tf.shape(leaves[0])[0]]
        begin, end, keys = tf.numpy_function(self._bounds, bounds, [tf.int64] * 3)
        return [leaf[begin:end] for leaf in leaves], keys

    def _bounds(self, element: np.int64, number: np.int64, size: np.int32):
        plan = self._plan
        expected, replica = divmod(int(element), self._replicas.count)
        epoch, step = divmod(expected, plan.steps)
        first, last = plan.share(step, 0, 1)
        with plan.noting_failures():
            check_batch(int(number), expected, int(size), last - first)
        begin, end = plan.share(step, self._replicas.first + replica, self._replicas.total)
        keys = self._keys(np.arange(begin, end), epoch)
        return np.int64(begin - first), np.int64(end - first), keys

    def _keys(self, indices: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        stages, seed = self._plan.stages, self._plan.order.seed
        keys = np.zeros((len(indices), len(stages), 2), np.int64)
        for number, stage in enumerate(stages):
            if stage.is_random:
                keys[:, number] = sample_keys(indices, seed, epoch, number)
        return keys


def _elements(plan: Plan, replicas: Replicas, start: int, stop: int) -> Any:
    """The numbers step * replicas + replica; a stream's come with (step, its global batch)."""
    count = replicas.count
    numbers = tf.data.Dataset.range(start * count, min(stop * count, FOREVER))
    if not isinstance(plan.source, StreamSource):
        return numbers
    made = plan.source.global_batches(plan.batch, plan.steps, start, min(stop, FOREVER // count))
    if count > 1:
        made = made.flat_map(lambda *one: tf.data.Dataset.from_tensors(one).repeat(count))
    return tf.data.Dataset.zip((numbers, made))


def _in_groups(reader: _Reader, spec: Any, start: int, stop: int) -> Any:
    """The batches as they stand, some of them read in one call."""
    group, stop = reader.group, min(stop, FOREVER)
    specs = tf.nest.flatten(spec)

    def read(first):
        last = tf.minimum(first + group, stop)
        *leaves, bounds = tf.numpy_function(reader.read_group, [first, last], reader.dtypes)
        for leaf, leaf_spec in zip(leaves, specs, strict=True):
            leaf.set_shape([None, *leaf_spec.shape[1:]])
        bounds.set_shape([None])
        return tuple(leaves), bounds

    def split(leaves, bounds):
        @tf.autograph.experimental.do_not_convert
        def part(begin, end):
            # Rows at the front of a tensor are a view of it.
            rows = [leaf[begin:end] for leaf in leaves]
            for leaf, leaf_spec in zip(rows, specs, strict=True):
                leaf.set_shape(leaf_spec.shape)
            return tf.nest.pack_sequence_as(spec, rows)

        pairs = tf.data.Dataset.from_tensor_slices((bounds[:-1], bounds[1:]))
        return _map_in_this_thread(pairs, part)

    groups = _map_in_this_thread(tf.data.Dataset.range(start, stop, group), read)
    return groups.flat_map(tf.autograph.experimental.do_not_convert(split))


def _item_bytes(dtype: tf.DType) -> int:
    return 4096 if dtype == tf.string else dtype.size


def _map_samples(elements, read, plan: Plan, size: int | None) -> tf.data.Dataset:
    """Applies the stages sample by sample, several steps at a time, in order."""
    functions = [_stage_function(stage, number) for number, stage in enumerate(plan.stages)]

    @tf.autograph.experimental.do_not_convert
    def step(*element):
        samples, keys = read(*element)
        made = tf.data.Dataset.from_tensor_slices((samples, keys))
        for function in functions:
            made = made.map(function)
        made = made.map(lambda sample, _: sample)
        if size is not None:
            return made.batch(size, drop_remainder=True)
        # A batch without samples is one too: others have some in this step.
        nothing = _zeros(batch_spec(made.element_spec, 0))
        return made.batch(plan.batch).concatenate(nothing).take(1)

    ahead = max(2, tf.config.threading.get_inter_op_parallelism_threads() or _cores())
    return elements.interleave(
        step, cycle_length=ahead, block_length=1, num_parallel_calls=ahead, deterministic=True
    )


def _stage_function(stage: Stage, number: int):
    # `if` and `for` on tensors work in the user's function, as in `tf.data.Dataset.map`, which
    # would not look into it here, because it is called from a function of ours.
    autograph = tf.__internal__.autograph
    function = autograph.tf_convert(stage.function, autograph.control_status_ctx())

    @tf.autograph.experimental.do_not_convert
    def apply(sample, keys):
        arguments = sample if isinstance(sample, tuple) else (sample,)
        options = {"seed": keys[number]} if stage.is_random else {}
        result = function(*arguments, **options)
        return tuple(result) if isinstance(result, list) else result, keys

    return apply


def _zeros(spec: Any) -> tf.data.Dataset:
    """One element of zeros; a dimension that may vary is empty."""
    zeros = tf.nest.map_structure(
        lambda leaf: tf.zeros([size or 0 for size in leaf.shape], leaf.dtype), spec
    )
    return tf.data.Dataset.from_tensors(zeros)


def _map_in_this_thread(dataset: tf.data.Dataset, function) -> Any:
    """`dataset.map(function)` without a change of threads for each element (60 us of 250).

    tensorflow/python/data/ops/map_op.py: `from_generator` is made in this way, but `map` has no
    option for it.
    """
    from tensorflow.python.data.ops import map_op

    function = tf.autograph.experimental.do_not_convert(function)
    return map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)


def _static_size(plan: Plan, total: int) -> int | None:
    return constant_share(plan.order.samples, plan.batch, total)


def _options() -> tf.data.Options:
    """Nothing here is left to be tuned, and analysing the graph takes ten milliseconds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.deterministic = True
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    return options


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
