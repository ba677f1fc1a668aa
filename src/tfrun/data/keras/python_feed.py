"""Lets `fit`, `evaluate` and `predict` share each batch that Python makes among all workers.

Each worker runs the whole generator and takes its rows of each batch: all of one batch in one
step, however fast each of them is.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from keras import tree
from keras.src import backend
from keras.src.backend.tensorflow import trainer
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from tfrun.data.drawn_orders import DrawnOrders
from tfrun.data.global_random import Drawn
from tfrun.data.keras import division
from tfrun.data.keras.python_batches import (
    Batches,
    GeneratorBatches,
    LoaderBatches,
    PyDatasetBatches,
    of_replica,
)


class PythonFeed(tf.distribute.DistributedDataset):
    """Batches of Python's under a strategy: `iter` begins them anew, `goes_on` does not.

    Args:
      batches: where they come from.
      strategy: that of the model.
      drawn: what they have drawn from the global random generators.

    Attributes:
      limit: how many batches an epoch may read; None for all there are.
    """

    def __init__(self, batches: Batches, strategy: tf.distribute.Strategy, drawn: Drawn) -> None:
        self.batches, self.drawn = batches, drawn
        drawn.is_read = True
        self.limit: int | None = None
        self._spec: Any = None
        whom = division.of_call(strategy, "a distributed generator")

        def of_this_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            here = division.mine(strategy, context, whom)
            ranks = range(here.first, here.first + here.count)
            setattr(batches.adapter, batches.reads_by, lambda: self._rows(ranks, here.total))
            with drawn.looks():
                made = batches.adapter.get_tf_dataset()
            self._spec = made.element_spec
            return made

        self._distributed = strategy.distribute_datasets_from_function(of_this_worker)

    def __iter__(self) -> Iterator[Any]:
        self.batches.begin()
        return self.goes_on()

    def goes_on(self) -> Iterator[Any]:
        """An iterator of the next epoch's batches."""
        return iter(self._distributed)

    @property
    def element_spec(self) -> Any:
        """The specification of a batch."""
        return self._spec

    @property
    def cardinality(self) -> int:
        """Nobody knows before they are read."""
        return tf.data.UNKNOWN_CARDINALITY

    def _rows(self, ranks: range, total: int) -> Iterator[Any]:
        for batch in self.drawn.each(self.batches.take(self.limit)):
            for rank in ranks:
                yield of_replica(batch, rank, total)


class FeedAdapter(DataAdapter):
    """Keras's view of a feed, which needs no conversion.

    Args:
      feed: what is iterated over.
      sizes: tells `num_batches` and `batch_size`; None for what nobody knows.
      hooks: a `PyDataset`, whose hooks are called as Keras calls them; None for other data.

    Attributes:
      orders: what the data draws between its batches.
    """

    def __init__(self, feed: Any, sizes: Any, hooks: Any = None) -> None:
        self.feed, self._sizes, self._hooks = feed, sizes, hooks
        self.orders = DrawnOrders()

    @property
    def has_hooks(self) -> bool:
        """Whether there are any."""
        return self._hooks is not None

    def get_tf_dataset(self) -> Any:
        return self.feed

    @property
    def num_batches(self) -> int | None:
        return self._sizes.num_batches

    @property
    def batch_size(self) -> int | None:
        return self._sizes.batch_size

    def on_epoch_begin(self) -> None:
        if self._hooks is not None:
            with self.orders.draws():
                self._hooks.on_epoch_begin()

    def on_epoch_end(self) -> None:
        if self._hooks is not None:
            with self.orders.draws():
                self._hooks.on_epoch_end()


def adapter_of(options: Mapping[str, Any], strategy: Any) -> FeedAdapter | None:
    """Returns the adapter of data that Python makes; None for all other data.

    Args:
      options: the arguments of Keras's epoch iterator.
      strategy: that of the model.
    """
    x = options.get("x")
    names = ("y", "sample_weight", "batch_size", "steps_per_epoch", "shuffle", "class_weight")
    given = {name: options[name] for name in names if name in options}
    hooks, drawn = None, Drawn(x if isinstance(x, types.GeneratorType) else None)
    if isinstance(x, types.GeneratorType):
        _refuse_as_keras(given)
        with drawn.looks():
            batches = GeneratorBatches(x)
    elif isinstance(x, PyDataset):
        theirs: Any = data_adapters.get_data_adapter(x, **given)
        hooks, batches = x, PyDatasetBatches(x, theirs, shuffle=bool(given.get("shuffle")))
    elif data_adapters.is_torch_dataloader(x):
        theirs = data_adapters.get_data_adapter(x, **given)
        batches = LoaderBatches(theirs.get_numpy_iterator, theirs)
    else:
        return None
    return FeedAdapter(PythonFeed(batches, strategy, drawn), batches.adapter, hooks)


def _refuse_as_keras(given: Mapping[str, Any]) -> None:
    """Has Keras refuse, or warn of, what does not go with a generator, without reading it."""

    def nothing() -> Iterator[Any]:
        yield ()

    data_adapters.get_data_adapter(nothing(), **given)


class PythonEpochIterator(trainer.TFEpochIterator):
    """Keras's own epoch iterator, with an iterator of its own for each epoch of Python's batches.

    It knows what a batch looks like without reading one, where that can be known.

    Attributes:
      drawn: what its batches have drawn from the global random generators, if Python makes them.
      orders: what is drawn between them.
    """

    def __init__(self, distribute_strategy=None, *args: Any, **kwargs: Any) -> None:
        made = adapter_of(kwargs, distribute_strategy)
        self._python = made.feed if made is not None else None
        self.drawn = self._python.drawn if self._python is not None else Drawn()
        self._replicas = getattr(distribute_strategy, "num_replicas_in_sync", 1)
        if made is not None:
            kwargs = {**kwargs, "x": made, "class_weight": None, "shuffle": False}
        super().__init__(distribute_strategy, *args, **kwargs)
        self.draws_in(DrawnOrders())
        if self._python is not None and self.steps_per_epoch:
            # Keras goes over the end of an epoch to make its last execution a whole one.
            executions = -(-self.steps_per_epoch // self.steps_per_execution)
            self._python.limit = executions * self.steps_per_execution

    def _enumerate_iterator(self) -> Any:
        feed = self._python
        self.drawn.begins()
        if feed is None:
            yield from super()._enumerate_iterator()
            return
        if self._current_iterator is not None:
            self._current_iterator = feed.goes_on()
        for begin, end, iterator in super()._enumerate_iterator():
            feed.batches.prepare(self.orders.draws)
            feed.drawn.takes(begin)
            feed.batches.taken += end + 1 - begin
            yield begin, end, iterator

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        with super().catch_stop_iteration():
            yield
        steps = 0
        if self._python is not None:
            steps = self._python.batches.taken
            self._python.batches.settle()
        self.drawn.ends(steps)

    def draws_in(self, orders: DrawnOrders) -> None:
        """What the data draws between its batches is one of these from now on."""
        self.orders = orders
        if isinstance(self.data_adapter, FeedAdapter):
            self.data_adapter.orders = orders

    @property
    def has_hooks(self) -> bool:
        """Whether the script's own code is told when an epoch ends, and may draw."""
        return isinstance(self.data_adapter, FeedAdapter) and self.data_adapter.has_hooks

    def symbolic_batch(self, *, partly: bool = False) -> Any | None:
        """What a worker's batch looks like; None where one has to be read to know.

        Args:
          partly: of each tensor it is enough to know how many dimensions it has.
        """
        if self._python is not None:
            known = _symbols(self._python.element_spec, 1)
            return _symbols(self._python.batches.sample(), None) if known is None else known
        if isinstance(self.data_adapter, TFDatasetAdapter):
            dataset = self.data_adapter.get_tf_dataset()
            if isinstance(dataset, tf.data.Dataset):
                return _symbols(dataset.element_spec, self._replicas, partly=partly)
        return None


def _symbols(spec: Any, replicas: int | None, *, partly: bool = False) -> Any | None:
    """Keras's symbols for such tensors; None where their shapes are not known.

    Args:
      spec: a nest of specifications, or of arrays.
      replicas: that share a batch; None where its size is to be unknown.
      partly: other sizes than the batch's may be unknown.
    """

    def symbol(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, tf.OptionalSpec):
            return None
        batch, *shape = leaf.shape
        shared = None if batch is None or replicas is None else -(-batch // replicas)
        return backend.KerasTensor((shared, *shape), backend.standardize_dtype(leaf.dtype))

    is_known = all(_is_known(leaf, partly) for leaf in tree.flatten(spec))
    return tree.map_structure(symbol, spec) if is_known else None


def _is_known(leaf: Any, partly: bool) -> bool:
    if leaf is None or isinstance(leaf, tf.OptionalSpec):
        return True
    shape = getattr(leaf, "shape", None)
    if shape is None or isinstance(leaf, tf.SparseTensorSpec | tf.RaggedTensorSpec):
        return False
    rank = shape.rank if isinstance(shape, tf.TensorShape) else len(shape)
    return bool(rank) and (partly or None not in list(shape)[1:])
