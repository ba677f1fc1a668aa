"""The `tf.data` pipeline that reads one worker's share of each global batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.ops import gen_dataset_ops

from tfrun.data.batch_reader import BatchReader
from tfrun.data.order.reading_plan import ReadingPlan, Stage
from tfrun.data.order.shards import Replicas, constant_share
from tfrun.data.python_calls import held_weakly, keeping
from tfrun.data.sources.compressed import FileShards
from tfrun.data.sources.source import Tolerant, batch_spec
from tfrun.data.sources.stream import StreamSource
from tfrun.process.python import usable_cores

FOREVER = 1 << 62
READERS = 8  # of pipelines over one plan that may be read at the same time


class Traced:
    """What pipelines over one plan have in common, so that only the first one takes long to make.

    To trace what reads the groups, and to make the zeros behind the data, takes fifteen times as
    long as all the rest.
    """

    def __init__(self) -> None:
        self._readers: dict[int, BatchReader] = {}  # the newest ones, by number
        self._count = 0
        # The first dataset's function, which reads for all, and what it returns. Not the dataset:
        # that knows of this, and would stay until the garbage collector finds both.
        self._over: tuple[Any, Any] | None = None
        self._zeros: Any = None

    def groups(self, numbers: tf.data.Dataset, reader: BatchReader, read_and_split: Any) -> Any:
        """Returns the batches of groups.

        Args:
          numbers: the groups'.
          reader: reads them.
          read_and_split: makes a dataset of a group's batches, of its number and of what reads it.
        """
        which = tf.constant(self._count, tf.int64)
        self._readers[self._count] = reader
        self._readers.pop(self._count - READERS, None)
        self._count += 1
        if self._over is not None:
            return keeping(_SameFlatMap(numbers, *self._over, [which]), self)
        own = held_weakly(self._read)
        read = tf.autograph.experimental.do_not_convert(
            lambda number: read_and_split(own, number, which)
        )
        made: Any = keeping(numbers.flat_map(read), self)
        captured = made._map_func.function.captured_inputs
        if [id(tensor) for tensor in captured] == [id(which)]:  # it depends on nothing else
            self._over = made._map_func, made._structure
        return made

    def _read(self, number: np.int64, which: np.int64) -> list[NDArray]:
        return self._readers[int(which)].read(number)

    def zeros(self, spec: Any) -> tf.data.Dataset:
        """Batches without samples, for ever."""
        if self._zeros is None:
            self._zeros = _zeros(spec).repeat()
        return self._zeros


class _SameFlatMap(dataset_ops.UnaryDataset):
    """A `flat_map` by the function of another one (tensorflow/python/data/ops/flat_map_op.py).

    Args:
      numbers: its input.
      function: of the other one.
      structure: what it returns.
      captured: what the function captures in this one.
    """

    def __init__(
        self, numbers: Any, function: Any, structure: Any, captured: Sequence[tf.Tensor]
    ) -> None:
        self._map_func, self._structure, self._name = function, structure, None
        variant = gen_dataset_ops.flat_map_dataset(
            numbers._variant_tensor, captured, f=self._map_func.function, **self._common_args
        )
        super().__init__(numbers, variant)

    def _functions(self) -> list[Any]:
        return [self._map_func]

    @property
    def element_spec(self) -> Any:
        return self._structure


def batches(
    plan: ReadingPlan,
    replicas: Replicas,
    start: int,
    stop: int,
    skip: int = 0,
    traced: Traced | None = None,
) -> tf.data.Dataset:
    """Returns the batches of these replicas for the steps [start, stop), counted over epochs.

    Args:
      plan: what to read.
      replicas: for whom. Each step yields one element for each of them, in order; one without a
        sample in that step gets a batch of zero samples.
      start: first step, epoch * steps of an epoch + step in the epoch.
      stop: the step before which to end; `FOREVER` for a stream without an end.
      skip: samples at the beginning of the first step's batch that are left out.
      traced: what other pipelines over this plan have made already.
    """
    if skip:
        made = _batches(plan, replicas, start, start + 1, skip)
        if stop > start + 1:
            made = made.concatenate(_batches(plan, replicas, start + 1, stop))
    else:
        made = _batches(plan, replicas, start, stop, traced=traced)
    made = made.prefetch(plan.prefetch) if plan.prefetch else made
    return made.with_options(_options())


def _batches(
    plan: ReadingPlan,
    replicas: Replicas,
    start: int,
    stop: int,
    skip: int = 0,
    traced: Traced | None = None,
) -> Any:
    varies = bool(skip) or isinstance(plan.source, Tolerant | FileShards)
    size = None if varies else constant_share(plan.order.samples, plan.batch, replicas.total)
    spec = batch_spec(plan.source.spec, size)
    reader = BatchReader(plan, replicas, start, stop, skip)
    if isinstance(plan.source, StreamSource):
        made = _of_stream(plan, replicas, reader, spec, start, stop)
    elif isinstance(plan.source, FileShards):
        made = _of_files(plan, replicas, reader, start, stop)
    else:
        made = _of_groups(plan, reader, spec, traced or Traced())
    return _map_samples(made, plan, size) if plan.stages else made


def as_endless(dataset: tf.data.Dataset, traced: Traced) -> tf.data.Dataset:
    """Adds batches without samples for ever, for a reader that knows itself when to stop.

    TensorFlow's distributed iterators ask all workers before each step of finite data whether
    any has some left: a collective in each step, for what every worker knows here.
    """
    return dataset.concatenate(traced.zeros(dataset.element_spec))


def _of_groups(plan: ReadingPlan, reader: BatchReader, spec: Any, traced: Traced) -> Any:
    """The batches; with stages, tuples of a batch and, if one is random, its samples' seeds."""
    begin, end = reader.numbers
    numbers = tf.data.Dataset.range(begin, min(end, FOREVER))
    specs: list[tf.TensorSpec] = tf.nest.flatten(spec)
    own = held_weakly(reader.read)

    @tf.autograph.experimental.do_not_convert
    def read(number, of=own, *which):
        leaves = tf.numpy_function(of, [number, *which], reader.dtypes)
        for leaf, leaf_spec in zip(leaves, specs, strict=False):
            leaf.set_shape([None, *leaf_spec.shape])
        batches = tf.nest.pack_sequence_as(spec, leaves[: len(specs)])
        if not plan.stages:
            return batches
        if plan.is_random:
            leaves[-1].set_shape([None, *specs[0].shape[:1], len(plan.stages), 2])
        return batches, *leaves[len(specs) :]

    if plan.stages and plan.source.sample_bytes is None:
        ahead = _ahead()
        made = numbers.map(read, num_parallel_calls=ahead, deterministic=True)
        return keeping(made, reader).unbatch()

    def read_and_split(of, number, *which):
        # Rows of a tensor, if aligned as ours mostly are, share its memory.
        return tf.data.Dataset.from_tensor_slices(read(number, of, *which))

    return traced.groups(numbers, reader, read_and_split)


def _of_stream(
    plan: ReadingPlan, replicas: Replicas, reader: BatchReader, spec: Any, start: int, stop: int
):
    """The same of a source without random access: this worker's rows of its global batches."""
    count = replicas.count
    numbers = tf.data.Dataset.range(start * count, min(stop * count, FOREVER))
    source: Any = plan.source
    made = source.global_batches(plan.batch, plan.steps, start, min(stop, FOREVER // count))
    if count > 1:
        made = made.flat_map(lambda *one: tf.data.Dataset.from_tensors(one).repeat(count))

    bounds = held_weakly(reader.bounds)

    def read(element, batch):
        leaves, keys = reader.slice(element, batch, bounds)
        for leaf, leaf_spec in zip(leaves, tf.nest.flatten(spec), strict=True):
            leaf.set_shape(leaf_spec.shape)
        keys.set_shape([tf.nest.flatten(spec)[0].shape[0], len(plan.stages), 2])
        rows = tf.nest.pack_sequence_as(spec, leaves)
        return (rows, keys) if plan.is_random else (rows,) if plan.stages else rows

    return keeping(map_in_this_thread(tf.data.Dataset.zip((numbers, made)), read), reader)


def _of_files(plan: ReadingPlan, replicas: Replicas, reader: BatchReader, start: int, stop: int):
    """The same of files that each replica reads whole."""
    source: Any = plan.source
    stop = min(stop, FOREVER // replicas.count)
    mine = range(replicas.first, replicas.first + replicas.count)
    each = [source.batches(one, replicas.total, plan.steps, start, stop) for one in mine]
    made = each[0]
    if len(each) > 1:
        turns = tf.data.Dataset.range(len(each)).repeat()
        made = tf.data.Dataset.choose_from_datasets(each, turns, stop_on_empty_dataset=True)
    if not plan.is_random:
        return made.map(lambda epoch, numbers, rows: (rows,) if plan.stages else rows)

    keys_of = held_weakly(reader.keys)

    def with_keys(epoch, numbers, rows):
        keys = tf.numpy_function(keys_of, [numbers, epoch], tf.int64)
        keys.set_shape([None, len(plan.stages), 2])
        return rows, keys

    return keeping(map_in_this_thread(made, with_keys), reader)


def _map_samples(batches, plan: ReadingPlan, size: int | None) -> tf.data.Dataset:
    """Applies the stages sample by sample, several steps at a time, in order."""
    functions = [stage_function(stage, number) for number, stage in enumerate(plan.stages)]

    @tf.autograph.experimental.do_not_convert
    def step(*batch):
        made = tf.data.Dataset.from_tensor_slices(batch)
        for function in functions:
            made = made.map(function)
        made = made.map(lambda sample, *_: sample)
        if size is not None:
            return made.batch(size, drop_remainder=True)
        # A batch without samples is one too: others have some in this step.
        nothing = _zeros(batch_spec(made.element_spec, 0))
        return made.batch(plan.batch).concatenate(nothing).take(1)

    ahead = _ahead()
    return batches.interleave(
        step, cycle_length=ahead, block_length=1, num_parallel_calls=ahead, deterministic=True
    )


def _ahead() -> int:
    return max(2, tf.config.threading.get_inter_op_parallelism_threads() or usable_cores())


def stage_function(stage: Stage, number: int):
    """Returns what applies a stage to (sample, keys) in `tf.data.Dataset.map`."""
    # `if` and `for` on tensors work in the user's function, as in `tf.data.Dataset.map`, which
    # would not look into it here, because it is called from a function of ours.
    autograph = tf.__internal__.autograph
    function = autograph.tf_convert(stage.function, autograph.control_status_ctx())

    @tf.autograph.experimental.do_not_convert
    def apply(sample, *keys):
        arguments = sample if isinstance(sample, tuple) else (sample,)
        options = {"seed": keys[0][number]} if stage.is_random else {}
        result = function(*arguments, **options)
        return tuple(result) if isinstance(result, list) else result, *keys

    return apply


def _zeros(spec: Any) -> tf.data.Dataset:
    """One element of zeros; a dimension that may vary is empty."""
    zeros = tf.nest.map_structure(
        lambda leaf: tf.zeros([size or 0 for size in leaf.shape], leaf.dtype), spec
    )
    return tf.data.Dataset.from_tensors(zeros)


def map_in_this_thread(dataset: tf.data.Dataset, function) -> Any:
    """`dataset.map(function)` without a change of threads for each element (60 us of 250).

    tensorflow/python/data/ops/map_op.py: `from_generator` is made in this way, but `map` has no
    option for it.
    """
    from tensorflow.python.data.ops import map_op

    function = tf.autograph.experimental.do_not_convert(function)
    return map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)


def _options() -> tf.data.Options:
    """Nothing here is left to be tuned, and analysing the graph takes ten milliseconds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.deterministic = True
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    return options
