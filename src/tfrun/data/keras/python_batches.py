"""Batches that Python makes (generators, `PyDataset`, loaders): each is given once, in order.

TensorFlow reads them in a thread of its own, as far ahead as there is time. What that thread has
read when its iterator is dropped is lost, a different number of batches on each worker, and behind
the end of an epoch it reads what the script is about to change. So a thread is given no more than
an epoch's batches, and what an epoch has not taken goes back.
"""

from __future__ import annotations

import itertools
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from keras import tree
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import (
    OrderedEnqueuer,
    PyDataset,
    PyDatasetAdapter,
)

from tfrun.data.order.shards import share

Draws = Callable[[], AbstractContextManager[None]]

SETTLE_SECONDS = 10.0  # for a generator to finish the batch that it is making


class Batches:
    """What an epoch's batches are taken of.

    Attributes:
      adapter: Keras's own.
      reads_by: which of the adapter's attributes makes an iterator of batches.
      taken: batches of this epoch that steps have been given.
    """

    reads_by: ClassVar[str]

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter
        self.taken = 0

    def sample(self) -> Any:
        """Returns a batch, for its shapes."""
        raise NotImplementedError

    def begin(self) -> None:
        """Has the next epoch begin them anew, instead of going on."""
        raise NotImplementedError

    def prepare(self, draws: Draws) -> None:
        """An epoch's first batch is about to be read. Called by the main thread.

        Args:
          draws: a context in which an order may be drawn.
        """

    def take(self, limit: int | None) -> Iterator[Any]:
        """Yields an epoch's batches: so many, or all there are. Called by another thread."""
        raise NotImplementedError

    def settle(self) -> None:
        """The epoch is over."""
        self.taken = 0


class _Ahead:
    """What has been read of a generator and not been taken, and who may read it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.batches: deque[Any] = deque()


# A script may pass one generator to several calls, and each goes on where the last one was.
_ahead: weakref.WeakKeyDictionary[Any, _Ahead] = weakref.WeakKeyDictionary()


class GeneratorBatches(Batches):
    """Those of a generator, as Keras has them: each pass begins with the two it has looked at.

    Args:
      generator: of whole batches.
    """

    reads_by = "generator"

    def __init__(self, generator: Iterator[Any]) -> None:
        self._generator = generator
        self._ahead = _ahead.setdefault(generator, _Ahead())
        super().__init__(GeneratorDataAdapter(self._next_ones()))
        self._first = self.adapter._first_batches
        self._place = self._turn = 0
        self._given: deque[tuple[Any, bool]] = deque()
        self._pruned = 0

    def sample(self) -> Any:
        return self._first[0]

    def begin(self) -> None:
        self._place = 0

    def take(self, limit: int | None) -> Iterator[Any]:
        turn, rest = self._turn, self._next_ones()
        for _ in itertools.count() if limit is None else range(limit):
            with self._ahead.lock:
                if turn != self._turn:
                    return
                looked_at = self._place < len(self._first)
                nothing = object()
                batch = self._first[self._place] if looked_at else next(rest, nothing)
                if batch is nothing:
                    return
                self._place += 1
                self._given.append((batch, looked_at))
                while self._given and self._pruned < self.taken:
                    self._given.popleft()
                    self._pruned += 1
            yield batch

    def settle(self) -> None:
        taken, self.taken = self.taken, 0
        if not self._ahead.lock.acquire(timeout=SETTLE_SECONDS):
            return  # the script's own code stands still: nothing can be read any more
        try:
            self._turn += 1
            left = list(self._given)[max(taken - self._pruned, 0) :]
            # Those that Keras has looked at come again anyway.
            back = [batch for batch, looked_at in left if not looked_at]
            self._ahead.batches.extendleft(reversed(back))
            self._place -= len(left)
            self._given.clear()
            self._pruned = 0
        finally:
            self._ahead.lock.release()

    def _next_ones(self) -> Iterator[Any]:
        while True:
            if self._ahead.batches:
                yield self._ahead.batches.popleft()
                continue
            try:
                batch = next(self._generator)
            except StopIteration:
                return
            yield batch


class PyDatasetBatches(Batches):
    """Those of a `PyDataset`: a pass over its indices, which may go over several epochs.

    Args:
      dataset: the dataset.
      shuffle: draw an order for each pass, from Python's generator, as Keras does.
      adapter: Keras's own.
    """

    reads_by = "_get_iterator"

    def __init__(self, dataset: PyDataset, adapter: PyDatasetAdapter, *, shuffle: bool) -> None:
        super().__init__(adapter)
        self._dataset, self._shuffle = dataset, shuffle
        self._order: list[int] | None = None
        self._is_begun = False
        self._next = 0

    def sample(self) -> Any:
        return self.adapter._standardize_batch(self._dataset[0])

    def begin(self) -> None:
        self._is_begun, self._next = False, 0

    def prepare(self, draws: Draws) -> None:
        if self._is_begun:
            return
        count = self._dataset.num_batches
        self._order = None if count is None else list(range(count))
        if self._shuffle and self._order is not None:
            with draws():
                random.shuffle(self._order)
        self._is_begun = True

    def take(self, limit: int | None) -> Iterator[Any]:
        first, order = self._next, self._order
        stop = None if limit is None else first + limit
        if order is not None:
            stop = min(len(order), len(order) if stop is None else stop)
        count = None if stop is None else max(stop - first, 0)
        part = _Part(self._dataset, first, order, count)
        workers = self._dataset.workers
        in_parallel = workers > 1 or (workers > 0 and self._dataset.use_multiprocessing)
        for batch in _in_parallel(part) if in_parallel else iter(part):
            yield self.adapter._standardize_batch(batch)

    def settle(self) -> None:
        if self._is_begun:  # else the pass is over too, and another one will begin
            self._next += self.taken
        super().settle()


class LoaderBatches(Batches):
    """Those of an object that begins anew whenever it is iterated.

    Args:
      make: begins anew.
      adapter: Keras's own.
    """

    reads_by = "get_numpy_iterator"

    def __init__(self, make: Callable[[], Iterator[Any]], adapter: Any) -> None:
        super().__init__(adapter)
        self._make = make
        self._batches: Iterator[Any] | None = None

    def sample(self) -> Any:
        return next(self._make())

    def begin(self) -> None:
        self._batches = None

    def prepare(self, draws: Draws) -> None:
        if self._batches is None:
            with draws():
                self._batches = self._make()

    def take(self, limit: int | None) -> Iterator[Any]:
        return itertools.islice(self._batches or iter(()), limit)


class _Part(PyDataset):
    """An epoch's part of a dataset.

    Args:
      base: the dataset.
      first: where in the order the part begins.
      order: of the dataset's indices; None for an endless one.
      count: batches of the part; None for an endless one.
    """

    def __init__(
        self, base: PyDataset, first: int, order: list[int] | None, count: int | None
    ) -> None:
        super().__init__(base.workers, base.use_multiprocessing, base.max_queue_size)
        self._base, self._first, self._order, self._count = base, first, order, count

    @property
    def num_batches(self) -> Any:
        return self._count

    def __getitem__(self, index: int) -> Any:
        place = self._first + index
        return self._base[place if self._order is None else self._order[place]]


def _in_parallel(part: _Part) -> Iterator[Any]:
    """The batches of a part, made by Keras's own threads or processes.

    One enqueuer for each part: what is left in Keras's own when an epoch ends is given again in
    the next one, before the next one's batches.
    """
    if part.num_batches == 0:
        return
    enqueuer = OrderedEnqueuer(
        part,
        workers=part.workers,
        use_multiprocessing=part.use_multiprocessing,
        max_queue_size=part.max_queue_size,
    )
    enqueuer.start()
    try:
        yield from itertools.islice(enqueuer.get(), part.num_batches)
    finally:
        enqueuer.stop()


def of_replica(batch: Any, rank: int, size: int) -> Any:
    """Returns the rows of a batch that belong to replica `rank` of `size`.

    They are copies, as TensorFlow would write into the script's own arrays: see `copied` in
    plain_pipelines.py.

    Args:
      batch: a nest of arrays and tensors, dense or sparse.
      rank: of the replica.
      size: number of replicas.
    """
    if size == 1:
        return batch

    def rows(leaf: Any) -> Any:
        if leaf is None:
            return None
        if not hasattr(leaf, "shape"):
            leaf = np.array(leaf)
        begin, end = share(int(leaf.shape[0]), rank, size)
        if hasattr(leaf, "dense_shape"):  # a tf.SparseTensor
            return _sparse_rows(leaf, begin, end)
        if hasattr(leaf, "tocsr"):  # of scipy
            return leaf.tocsr()[begin:end]
        part = leaf[begin:end]
        return part.copy() if isinstance(part, np.ndarray) else part

    return tree.map_structure(rows, batch)


def _sparse_rows(leaf: Any, begin: int, end: int) -> Any:
    import tensorflow as tf

    sizes: Any = [end - begin, *map(int, leaf.shape[1:])]
    return tf.sparse.slice(leaf, [begin, *[0] * (len(sizes) - 1)], sizes)
