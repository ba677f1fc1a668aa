"""The batches of a custom loop, from any place in the data on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.distributed import DistributedView, Feed
from tfrun.data.position import Position


class ExactReader:
    """Reads a `tfrun.Dataset`, which finds any place at once.

    Attributes:
      place: the next batch; at the end of an epoch, one past its last step.
    """

    def __init__(self, dataset: Dataset, strategy: Any, place: Position | None) -> None:
        self._dataset, self._nothing_left = dataset, False
        if place is not None and place.step >= dataset.steps_per_epoch:
            self._nothing_left = True
            dataset.position = Position(epoch=place.epoch + 1)
        elif place is not None:
            dataset.position = place
        self._feed = Feed(dataset, strategy, training=True, epoch_steps=None, per_execution=1)
        self.place = place or dataset.position

    def epoch(self) -> Iterator[Any]:
        """Yields the batches of the next epoch, or those that are left of one."""
        if self._nothing_left:
            self._nothing_left = False
        else:
            with self._dataset.coded_errors():
                for step, _, iterator in self._feed.executions():
                    batch = next(iterator)
                    self.place = Position(epoch=self.place.epoch, step=step + 1)
                    yield batch
        self.place = Position(epoch=self.place.epoch + 1)


class PipelineReader:
    """Reads a `tf.data.Dataset`, or one that a strategy has distributed already.

    Attributes:
      place: the next batch; an epoch is one iteration over the dataset.
    """

    def __init__(self, dataset: Any, strategy: Any, place: Position | None) -> None:
        counted = getattr(dataset, "cardinality", None)
        size = counted() if callable(counted) else counted
        # A pipeline of known length draws the order of its epoch when it begins, and need not be
        # read to be passed. A generator is read through.
        self._begins_anew = size is not None and int(size) >= 0  # type: ignore[arg-type]
        is_plain = isinstance(dataset, tf.data.Dataset)
        self._made: Any = strategy.experimental_distribute_dataset(dataset) if is_plain else dataset
        self.place = place or Position()
        for _ in range(self.place.epoch):
            iterator = iter(self._made)
            for _ in () if self._begins_anew else iterator:
                pass

    def epoch(self) -> Iterator[Any]:
        """Yields the batches of the next epoch, or those that are left of one."""
        iterator, passed = iter(self._made), self.place.step
        for number, batch in enumerate(iterator):
            if number >= passed:
                self.place = Position(epoch=self.place.epoch, step=number + 1)
                yield batch
        self.place = Position(epoch=self.place.epoch + 1)


Reader = ExactReader | PipelineReader


def reader_of(dataset: Any, strategy: Any, place: Position | None) -> Reader:
    """Returns the reader of a dataset, which begins at `place`.

    Args:
      dataset: a `tfrun.Dataset`, a `tf.data.Dataset`, or what a strategy has made of either.
      strategy: that of the model.
      place: None to begin where the dataset stands.
    """
    if isinstance(dataset, DistributedView):
        return ExactReader(dataset.dataset, dataset.strategy, place)
    if isinstance(dataset, Dataset):
        return ExactReader(dataset, strategy, place)
    return PipelineReader(dataset, strategy, place)


def name_of(dataset: Any) -> str | None:
    """The name that a dataset has in every run of the script; None when it has none."""
    inner = dataset.dataset if isinstance(dataset, DistributedView) else dataset
    return inner.name if isinstance(inner, Dataset) else None
