"""Reads the batches of a custom loop, from any place in the data on.

Where a worker takes turns for several replicas, a step's batch is a list: the piece of each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.keras import division, global_batch
from tfrun.data.keras.distributed import DistributedView, Feed
from tfrun.data.keras.in_turn import Divided, InTurn
from tfrun.data.order import repeatable
from tfrun.data.order.other_batches import Reads, where
from tfrun.data.order.position import Position
from tfrun.engine.replica import turns_of
from tfrun.job import holding
from tfrun.state.fit_data import tell_doubt


class ExactReader:
    """Reads a `tfrun.Dataset`, which finds any place at once.

    Attributes:
      name: the same one in every run of the script.
      place: the next batch; at the end of an epoch, one past its last step.
      reads: how an epoch is read.
      in_turn: a step's batch is a list of pieces.

    Args:
      dataset: the data.
      strategy: that of the model.
      epochs: how many of them will be read at most.
      in_turn: a worker's replicas take turns.
    """

    def __init__(
        self, dataset: Dataset, strategy: Any, epochs: int, *, in_turn: bool = False
    ) -> None:
        self.name, self.place = dataset.name, dataset.position
        self.in_turn = in_turn
        self.reads = global_batch.reads_of(dataset)
        self._dataset, self._strategy, self._epochs = dataset, strategy, epochs
        self._feed: Feed | None = None
        self._nothing_left = False

    def go_to(self, place: Position, *, goes_on: bool = False) -> None:
        """Has the next epoch begin there.

        Args:
          place: the next batch.
          goes_on: the training goes on there, and what was read before is in its state.
        """
        self._nothing_left = place.step >= self._dataset.steps_per_epoch
        next_one = Position(epoch=place.epoch + 1)
        self._dataset.position = next_one if self._nothing_left else place
        feed = self._begin()
        if goes_on:
            feed.goes_on()
        self.place = place

    def epoch(self) -> Iterator[Any]:
        """Yields the batches of the next epoch, or those that are left of one."""
        feed = self._feed or self._begin()
        if self._nothing_left:
            self._nothing_left = False
        else:
            with self._dataset.coded_errors():
                for step, _, iterator in feed.executions():
                    own = len(holding.own()) if self.in_turn else 0
                    batch = division.pieces_of(iterator, own) if own else next(iterator)
                    self.place = Position(epoch=self.place.epoch, step=step + 1)
                    yield batch
        self.place = Position(epoch=self.place.epoch + 1)

    def repeat(self) -> list[Any]:
        """The pieces of the newest step again, of those replicas that this worker has by now."""
        assert self._feed is not None
        return division.pieces_of(self._feed.repeat(1), len(holding.own()))

    def _begin(self) -> Feed:
        with _among(self.in_turn):
            self._feed = Feed(
                self._dataset,
                self._strategy,
                training=True,
                epoch_steps=None,
                per_execution=1,
                epochs=max(self._epochs - self._nothing_left, 0),
            )
        self.place = self._dataset.position
        return self._feed


class PipelineReader:
    """Reads a `tf.data.Dataset`, or one that a strategy has distributed already.

    There is one for each dataset of a script: what a pipeline gives next depends on how often it
    has been read.

    Attributes:
      name: the same one in every run of the script that makes the same datasets.
      place: the next batch; an epoch is one iteration over the dataset.
      reads: how an epoch is read.
      in_turn: as of `ExactReader`.

    Args:
      dataset, strategy, in_turn: as of `ExactReader`.
    """

    def __init__(self, dataset: Any, strategy: Any, *, in_turn: bool = False) -> None:
        self.name, self.place = _description(dataset), Position()
        size, found = _size(dataset), global_batch.reads_of(dataset)
        self.reads = replace(found, steps=size if size is not None and size >= 0 else None)
        # A pipeline of known length draws the order of its epoch when it begins, and need not be
        # read to be passed. A generator is read through.
        self._begins_anew = size is not None and size >= 0
        self._begun, self._given = 0, dataset
        self.in_turn = in_turn
        self._steps: division.StepsInTurn | None = None

        def made() -> Any:
            is_plain = isinstance(dataset, tf.data.Dataset)
            return strategy.experimental_distribute_dataset(dataset) if is_plain else dataset

        self._made = Divided(made, strategy) if in_turn else made()

    def go_to(self, place: Position, *, goes_on: bool = False) -> None:
        """Has the next epoch begin there; never before where it has been."""
        if place > Position():
            repeatable.warn_once(self._given)
        fills_cache = self._begun == 0 and repeatable.has_cache(self._given)
        reads = not self._begins_anew or repeatable.moves_while_read(self._given)
        while self._begun < place.epoch:
            iterator = self._iterator()
            for _ in iterator if reads or fills_cache else ():
                pass
            fills_cache = False
        self.place = place

    def epoch(self) -> Iterator[Any]:
        """Yields the batches of the next epoch, or those that are left of one."""
        passed = self.place.step
        batches = enumerate(self._iterator())
        while True:
            with errors.coded_sharding():
                number, batch = next(batches, (0, None))
            if batch is None:
                break
            if number >= passed:
                self.place = Position(epoch=self.place.epoch, step=number + 1)
                yield batch
        self.place = Position(epoch=self.place.epoch + 1)

    def _iterator(self) -> Iterator[Any]:
        self._begun += 1
        if not isinstance(self._made, Divided):
            return iter(self._made)
        self._steps = self._made.steps()
        return self._steps

    def repeat(self) -> list[Any]:
        """As of `ExactReader`."""
        assert self._steps is not None
        return self._steps.repeat()


Reader = ExactReader | PipelineReader


# Where the script's earlier run stood in each dataset that this run has not come to yet.
_stood: dict[str, tuple[int, ...]] = {}


def stood_at(data: Mapping[str, tuple[int, ...]]) -> None:
    """Notes where a training of the script's earlier run stood: epoch, step, sample, by name."""
    _stood.update(data)


def go_on(
    reader: Reader, mine: tuple[int, ...] | None, kept: Mapping[str, Mapping[str, Any]]
) -> None:
    """Has a reader begin where the script's earlier run stood in its data.

    Args:
      reader: of the data.
      mine: where this training stood in it; None where it had not come to it.
      kept: how data was read then, by name, see `Reads.kept`.

    Raises:
      TfrunError: TFRUN-617 where nobody can say, and the job has only begun.
    """
    others = _stood.pop(reader.name, None)
    if mine is not None:
        reader.go_to(_place_in(reader, kept, *mine), goes_on=True)
    elif others is not None:
        reader.go_to(Position(epoch=others[0], step=others[1]).next_epoch())


def _place_in(
    reader: Reader, kept: Mapping[str, Any], epoch: int, step: int, skip: int = 0
) -> Position:
    """Returns where a loop goes on in data that it may read in other batches now.

    Args:
      reader: of the data.
      kept: how data was read when the state was kept, by name, see `Reads.kept`.
      epoch: of the data, from 0.
      step: of the epoch, in batches of then.
      skip: samples of that batch that are done.
    """
    then, now = kept.get(reader.name, {}), reader.reads
    before = Reads.of(then)
    seen = before.seen(step)
    at = where(
        {**then, "seen": None if seen is None else seen + skip},
        now,
        step=step,
        epochs=epoch,
        trained=before.steps is not None and step >= before.steps,
    )
    tell_doubt(at, "state.steps, dataset")
    return Position(epoch=epoch, step=at.step, skip=at.skip)


_pipelines: list[tuple[Any, PipelineReader]] = []


def reader_of(dataset: Any, strategy: Any, epochs: int, *, in_turn: bool = False) -> Reader:
    """Returns the reader of a dataset, which stands where the dataset does.

    Args:
      dataset: a `tfrun.Dataset`, a `tf.data.Dataset`, or what a strategy has made of either.
      strategy: that of the model.
      epochs: how many of them will be read at most.
      in_turn: a worker's replicas take turns.
    """
    if isinstance(dataset, InTurn):
        dataset = dataset.given
    if isinstance(dataset, DistributedView):
        return ExactReader(dataset.dataset, dataset.strategy, epochs, in_turn=in_turn)
    if isinstance(dataset, Dataset):
        return ExactReader(dataset, strategy, epochs, in_turn=in_turn)
    for known, reader in _pipelines:
        if known is dataset:
            return reader
    if in_turn:
        division.see_who_divides(strategy, dataset, together=False)
        is_given = isinstance(dataset, tf.distribute.DistributedDataset)
        in_turn = turns_of(strategy) is not None and not is_given
    made = PipelineReader(dataset, strategy, in_turn=in_turn)
    alike = sum(other.name.partition("#")[2] == made.name for _, other in _pipelines)
    made.name = f"{alike}#{made.name}"
    _pipelines.append((dataset, made))
    return made


def _among(in_turn: bool) -> contextlib.AbstractContextManager[None]:
    """While it lasts, data is distributed among the job's replicas, where they take turns."""
    return division.among("replicas") if in_turn else contextlib.nullcontext()


def _size(dataset: Any) -> int | None:
    counted = getattr(dataset, "cardinality", None)
    size = counted() if callable(counted) else counted
    return None if size is None else int(size)  # type: ignore[arg-type]


def _description(dataset: Any) -> str:
    return f"{_size(dataset)} x {getattr(dataset, 'element_spec', None)}"
