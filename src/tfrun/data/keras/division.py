"""Finds among whom the batches of a call are divided, and which of the pieces are this worker's.

`fit` and `evaluate` divide a batch among the replicas of the job, `predict` among its workers. A
worker's iterator yields the pieces of its replicas one after the other: `per_step` elements a step.
Where a worker may come to hold other replicas (`--balance auto`, `--in-place`), it yields those of
all, of which each step takes its own, unless the data can be read anew from any step on.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Literal

import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute
from tensorflow.python.distribute import values

from tfrun.data import errors
from tfrun.data.keras import plain_pipelines
from tfrun.data.order.repeatable import steps_of
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import map_in_this_thread
from tfrun.job import holding
from tfrun.job.world import fixed_replicas, may_stay, take_one_for_good, world

Whom = Literal["replicas", "workers"]

_of_call: ContextVar[Whom | None] = ContextVar("among whom a call divides its data", default=None)


@contextlib.contextmanager
def among(whom: Whom) -> Iterator[None]:
    """While it lasts, data is distributed for a call of Keras's that divides it among these."""
    token = _of_call.set(whom)
    try:
        yield
    finally:
        _of_call.reset(token)


def is_of_call() -> bool:
    """Whether data is distributed for a call of Keras's, or for steps of a loop."""
    return _of_call.get() is not None


def of_call(strategy: Any, what: str) -> Whom:
    """Among whom data is divided that is distributed now.

    Args:
      strategy: by which it is.
      what: has it distributed, for a person.

    Raises:
      UsageError: TFRUN-107 where no call of Keras's does, but the script itself, and the job has
        more replicas than workers: a loop of the script's own has one on each.
    """
    found, here = _of_call.get(), world()
    if found is None and here.replicas != here.size and _shares(strategy):
        raise errors.one_replica_each(what, here.replicas, here.size)
    return found or "workers"


def see_who_divides(strategy: Any, dataset: Any, together: bool) -> None:
    """Looks whether the workers divide each batch of some data, before it is distributed.

    Where TensorFlow gives each worker files of its own, or the script has distributed the data
    itself, nobody else could go on with what one worker has read.

    Args:
      strategy: that of the model.
      dataset: what it is given.
      together: several steps are one call, which reads their batches itself.
    """
    if not may_stay() or not _shares(strategy):
        return
    if together:
        take_one_for_good("it makes several steps in one call")
    elif isinstance(dataset, tf.distribute.DistributedDataset):
        take_one_for_good("the script has distributed its data itself")
    elif not is_by_batch(strategy, dataset):
        take_one_for_good(OWN_FILES)


OWN_FILES = "each worker reads files of its own, or all of the data"


def is_by_batch(strategy: Any, dataset: Any) -> bool:
    """Whether the workers share each batch of some data that the strategy divides."""
    if not isinstance(dataset, tf.data.Dataset):
        return True
    has_files = not getattr(strategy, "is_adopted", False) and _may_have_files(dataset)
    return plain_pipelines.is_by_batch(dataset, has_files=has_files)


def mine(
    strategy: Any, context: tf.distribute.InputContext, whom: Whom, *, anew: bool = False
) -> Replicas:
    """Returns for whom this worker reads.

    Args:
      strategy: by which the data is distributed.
      context: what it tells.
      whom: among whom each batch is divided.
      anew: the data can be read anew, from any step on, for other replicas.
    """
    if not _holds_several(strategy):
        return Replicas.of(context)
    here = world()
    if whom == "workers":
        return Replicas(first=here.rank, total=here.size)
    if reads_all(strategy, whom) and not anew:
        return Replicas(count=here.replicas, total=here.replicas)
    own = holding.own()
    return Replicas(first=own.start, count=len(own), total=here.replicas)


def per_step(strategy: Any, whom: Whom, *, anew: bool = False) -> int:
    """How many elements this worker's iterator has for each step; arguments as of `mine`."""
    if whom == "workers" or not _holds_several(strategy):
        return 1
    every = reads_all(strategy, whom) and not anew
    return world().replicas if every else len(holding.own())


def reads_all(strategy: Any, whom: Whom) -> bool:
    """Whether this worker reads the pieces of all replicas: it may come to hold others.

    Args:
      strategy: that of the model.
      whom: among whom its batches are divided.
    """
    others_come = holding.may_move() or may_stay()
    return whom == "replicas" and _holds_several(strategy) and others_come


class AllPieces:
    """The pieces of all replicas, of one epoch's steps.

    It can go back: to the first step of the newest execution, or as far as it is told to keep.

    Attributes:
      spec: of a piece.
      keeps: it can go back to its first step.
      bytes: of what it keeps, and has given.

    Args:
      iterator: of them; it stands before the epoch's first step.
      spec: see above.
    """

    def __init__(self, iterator: Any, spec: Any) -> None:
        self._iterator, self.spec = iterator, tf.nest.map_structure(_spec_here, spec)
        self.keeps, self.bytes = False, 0
        self._kept: list[list[Any]] = []  # of each step the pieces of all replicas
        self._first = self._next = self._stop = 0
        self._is_over = False

    def __iter__(self) -> AllPieces:
        return self

    def __next__(self) -> Any:
        return element(self._iterator)

    def execute(self, begin: int, end: int) -> AllPieces:
        """From now on it gives the steps [begin, end], and then nothing."""
        self._next, self._stop = begin, end + 1
        if not self.keeps:
            self.forget(begin)
        return self

    def forget(self, before: int) -> None:
        """Nobody will go back before this step."""
        count = min(max(before - self._first, 0), len(self._kept))
        del self._kept[:count]
        self._first += count

    def own(self) -> list[Any]:
        """The pieces of the next step that are this worker's.

        Raises:
          StopIteration: the data has come to its end, or the execution.
        """
        if self._next == self._stop:
            raise StopIteration
        self._read(self._next)
        pieces, held = self._kept[self._next - self._first], holding.own()
        self._next += 1
        return [tf.nest.map_structure(_here, piece) for piece in pieces[held.start : held.stop]]

    def pass_by(self) -> None:
        """Reads all of the steps that it is to give.

        Raises:
          StopIteration: the data has come to its end.
        """
        if self._next < self._stop:
            self._read(self._stop - 1)

    def _read(self, step: int) -> None:
        while self._first + len(self._kept) <= step:
            if self._is_over:
                raise StopIteration
            try:
                pieces = [_next_of(self._iterator) for _ in range(world().replicas)]
            except (StopIteration, tf.errors.OutOfRangeError):
                self._is_over = True
                raise StopIteration from None
            self._kept.append(pieces)
            if self.keeps:
                self.bytes += sum(map(_bytes_of, tf.nest.flatten(pieces)))
            else:
                self.forget(min(self._next, step))


class StepsInTurn:
    """The pieces of each step that are this worker's, of data divided among replicas.

    Args:
      iterator: of what the strategy has distributed; it stands before the first step.
      spec: of an element.
      every: it gives the pieces of all replicas.
    """

    def __init__(self, iterator: Any, spec: Any, *, every: bool) -> None:
        self._iterator, self._step = iterator, -1
        self._every = AllPieces(iterator, spec) if every else None

    def __iter__(self) -> StepsInTurn:
        return self

    def __next__(self) -> list[Any]:
        if self._every is None:
            return pieces_of(self._iterator, len(holding.own()))
        self._step += 1
        return self.repeat()

    def repeat(self) -> list[Any]:
        """The pieces of the newest step again, of those replicas that this worker has by now."""
        assert self._every is not None, "only who reads all pieces may come to hold others"
        return self._every.execute(self._step, self._step).own()


def pieces_of(iterator: Any, count: int) -> list[Any]:
    """The next pieces that an iterator gives, of this worker's replicas.

    Raises:
      StopIteration: there are none.
    """
    return [tf.nest.map_structure(_here, element(iterator)) for _ in range(count)]


def _bytes_of(leaf: Any) -> int:
    leaf = _here(leaf)
    if leaf is None:
        return 0
    dense = getattr(leaf, "values", leaf)  # of what is sparse, or ragged
    return int(tf.size(dense)) * max(getattr(dense.dtype, "size", 1), 1)


def _here(leaf: Any) -> Any:
    return leaf.values[0] if isinstance(leaf, tf.distribute.DistributedValues) else leaf


def _spec_here(leaf: Any) -> Any:
    return leaf._value_specs[0] if isinstance(leaf, values.PerReplicaSpec) else leaf


def _holds_several(strategy: Any) -> bool:
    """Whether a job's workers hold several replicas, or some of them do, or may come to."""
    here = world()
    return _shares(strategy) and (here.replicas != here.size or may_stay())


def _shares(strategy: Any) -> bool:
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def pieces(dataset: tf.data.Dataset, here: Replicas) -> Any:
    """Returns what some replicas have of each batch of a pipeline, which is read once.

    A batch is divided as TensorFlow divides it among as many workers (`AutoShardPolicy.DATA`): each
    replica has a piece of each, which may be empty.

    Raises:
      UsageError: TFRUN-107 where the pipeline's options say that it is divided otherwise.
    """
    policies = tf.data.experimental.AutoShardPolicy
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy not in (policies.AUTO, policies.DATA):
        raise errors.not_divided_by_batch(policy.name)
    if _has_sparse(dataset):
        return _cut(dataset, here).prefetch(here.count)
    made: Any = distribute._LegacyRebatchDataset(dataset, here.total)
    if here.count == 1:
        made = made.shard(here.total, here.first)
    elif here.count < here.total:
        made = made.enumerate().filter(lambda number, _: _is_of(number % here.total, here))
        made = map_in_this_thread(made, lambda _, element: element)
    return made.prefetch(here.count)


def is_cut(dataset: Any) -> bool:
    """Whether TensorFlow would divide the batches of a pipeline, and cannot: of sparse tensors.

    It divides them by rows that it has serialized, and can make no tensor of none ("Serialized
    sparse should have at least 1 serialized tensor").
    """
    if not _has_sparse(dataset):
        return False
    return plain_pipelines.is_by_batch(dataset, has_files=_may_have_files(dataset))


def _has_sparse(dataset: Any) -> bool:
    leaves = tf.nest.flatten(dataset.element_spec)
    return any(isinstance(leaf, tf.SparseTensorSpec) for leaf in leaves)


def _may_have_files(dataset: Any) -> bool:
    """Whether a pipeline may read files, which TensorFlow shares out instead of batches."""
    for step in steps_of(dataset):
        leaves = tf.nest.flatten(step.element_spec)
        if any(getattr(leaf, "dtype", None) == tf.string for leaf in leaves):
            return True
    return False


def _cut(dataset: tf.data.Dataset, here: Replicas) -> tf.data.Dataset:
    """Returns the pieces of each batch, cut out as tensors of their own."""
    spec: Any = dataset.element_spec

    def piece(batch: Any, replica: Any) -> Any:
        first = tf.nest.flatten(batch)[0]
        begin, end = _share(_samples(first), replica, here.total)
        return tf.nest.map_structure(lambda leaf: _rows(leaf, begin, end), batch)

    def of_batch(*batch: Any) -> tf.data.Dataset:
        packed: Any = batch if isinstance(spec, tuple) else batch[0]
        numbers = tf.data.Dataset.range(here.first, here.first + here.count)
        return numbers.map(functools.partial(piece, packed))

    made, batches = dataset.flat_map(of_batch), int(dataset.cardinality())
    if batches == tf.data.UNKNOWN_CARDINALITY:
        return made
    known = batches if batches == tf.data.INFINITE_CARDINALITY else batches * here.count
    return made.apply(tf.data.experimental.assert_cardinality(known))


def _samples(leaf: Any) -> Any:
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    return leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf, tf.int64)[0]


def _share(count: Any, replica: Any, total: int) -> tuple[Any, Any]:
    """`share` of order/shards.py, of tensors."""
    small, larger = count // total, count % total
    begin = replica * small + tf.minimum(replica, larger)
    return begin, begin + small + tf.cast(replica < larger, tf.int64)


def _rows(leaf: Any, begin: Any, end: Any) -> Any:
    if not isinstance(leaf, tf.SparseTensor):
        return leaf[begin:end]
    sizes = leaf.dense_shape[1:]
    starts = tf.concat([[begin], tf.zeros_like(sizes)], 0)
    rows = tf.sparse.slice(leaf, starts, tf.concat([[end - begin], sizes], 0))
    rows.set_shape([None, *leaf.shape[1:]])
    return rows


def _is_of(replica: Any, here: Replicas) -> Any:
    return (replica >= here.first) & (replica < here.first + here.count)


def element(iterator: Any) -> Any:
    """Returns the next element of a worker's iterator, outside of any step.

    Where the job states its replicas, workers may have another number of them for each step, and a
    distributed iterator must not ask the others whether they have one, too.
    """
    return _next_of(iterator) if fixed_replicas() else next(iterator)


def _next_of(iterator: Any) -> Any:
    """The same, of pieces that each worker reads for itself."""
    if not isinstance(iterator, tf.distribute.DistributedIterator):
        return next(iterator)
    try:
        return iterator._get_next_no_partial_batch_handling()
    except tf.errors.OutOfRangeError:
        raise StopIteration from None
