"""Computes which samples a worker has in each global batch, from any place in the data on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.ledger import writer as ledger
from tfrun.data.order.position import Position
from tfrun.data.order.reading_plan import CodedErrors, ReadingPlan
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import batches
from tfrun.data.sources.compressed import FileShards
from tfrun.data.sources.source import Tolerant
from tfrun.data.sources.stream import StreamSource
from tfrun.job.world import world

_numbers = itertools.count()


class Epochs:
    """The reading side of `tfrun.Dataset`: everything but how it is made."""

    def __init__(self, plan: ReadingPlan) -> None:
        self._plan = plan
        self._position = Position()
        self._sought = False
        # The n-th dataset of a script is the same one on all workers and in all rounds.
        self.name = f"data{next(_numbers)}"

    @property
    def plan(self) -> ReadingPlan:
        """All that decides what is read."""
        return self._plan

    @property
    def samples(self) -> int:
        """Number of samples in an epoch."""
        return self._plan.order.samples

    @property
    def batch_size(self) -> int:
        """Samples in a global batch."""
        return self._plan.batch

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch; the last one may be short."""
        return self._plan.steps

    def __len__(self) -> int:
        return self.steps_per_epoch

    @property
    def skipped(self) -> int:
        """Samples that this process has left out, with `on_error="skip"`."""
        return getattr(self._plan.source, "skipped", 0)

    @property
    def position(self) -> Position:
        """The global batch after the last one that was handed to training."""
        return self._position

    @position.setter
    def position(self, position: Position) -> None:
        begin, end = self._plan.share(position.step, 0, 1)
        if (
            position.epoch < 0
            or not 0 <= position.step < self.steps_per_epoch
            or not 0 <= position.skip < end - begin
            or (position.skip and self.is_by_file)
        ):
            raise errors.bad_argument(
                f"{position} is not in the data",
                "Dataset.position",
                f"an epoch from 0 and a step from 0 to {self.steps_per_epoch - 1}",
            )
        self._position, self._sought = position, True

    def start(self, *, whole_epochs: bool = True) -> tuple[Position, bool]:
        """Begins a pass of training: returns where, and whether somebody has set that place.

        Args:
          whole_epochs: begin at the next epoch, unless the position was set.
        """
        sought, self._sought = self._sought, False
        if whole_epochs and not sought:
            self._position = self._position.next_epoch()
        return self._position, sought

    def advance(self, position: Position) -> None:
        """Notes how far training has come."""
        self._position = position

    def sample_ids(self, epoch: int, step: int, rank: int = 0, size: int = 1):
        """Returns the samples of a global batch, or of one worker's part of it, in order.

        Args:
          epoch: from 0.
          step: from 0, below `steps_per_epoch`.
          rank: of the worker.
          size: number of workers.

        Returns:
          int64 of shape [samples in the part]. Not with `shard="FILE"` (TFRUN-607).
        """
        if self.is_by_file:
            what = 'with shard="FILE" a batch has no place in an order of all samples'
            raise errors.bad_argument(what, "Dataset.sample_ids", "another source")
        return self._plan.order.indices(epoch, *self._plan.share(step, rank, size))

    def share(self, step: int, replicas: Replicas, skip: int = 0) -> tuple[int, int]:
        """Returns the positions [begin, end) in an epoch's order that these replicas read."""
        first, last = replicas.first, replicas.first + replicas.count - 1
        begin, _ = self._plan.share(step, first, replicas.total, skip)
        _, end = self._plan.share(step, last, replicas.total, skip)
        return begin, end

    @property
    def is_stream(self) -> bool:
        """Whether samples are known by their position in a `tf.data` pipeline only."""
        return isinstance(self._plan.source, StreamSource)

    @property
    def is_by_file(self) -> bool:
        """Whether files decide who reads which sample: `shard="FILE"`."""
        return isinstance(self._plan.source, FileShards)

    @property
    def tolerant(self) -> int | None:
        """Which of the script's sources with `on_error="skip"` this reads; None for any other."""
        return self._plan.source.number if isinstance(self._plan.source, Tolerant) else None

    @property
    def key(self) -> tuple[int, bool]:
        """Seed of the order, and whether epochs are shuffled."""
        return self._plan.order.seed, self._plan.order.shuffle

    def tf_data(
        self, rank: int = 0, size: int = 1, epoch: int = 0, start_step: int = 0, skip: int = 0
    ) -> tf.data.Dataset:
        """Returns one worker's batches of one epoch as a plain `tf.data.Dataset`.

        Args:
          rank: of the worker.
          size: number of workers that share each global batch.
          epoch: from 0.
          start_step: the first step, from 0.
          skip: samples at the beginning of its global batch that are left out.

        Returns:
          `steps_per_epoch - start_step` batches. Where this worker has no sample in a batch, its
          batch has zero samples.
        """
        count, begin = self.steps_per_epoch - start_step, epoch * self.steps_per_epoch + start_step
        made = self.stream(Replicas(first=rank, total=size), begin, begin + count, skip)
        return made.apply(tf.data.experimental.assert_cardinality(count))

    def stream(self, replicas: Replicas, start: int, stop: int, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches of some replicas; see `tfrun.data.pipeline.batches`."""
        return batches(self._plan, replicas, start, stop, skip)

    def __iter__(self) -> Iterator[Any]:
        """Yields this worker's batches of the next epoch, or of the rest of it from `position`."""
        left, here = self.position, world()
        place, sought = self.start()
        how: ledger.How = "sought" if sought else "next"
        tape = ledger.open_tape(self, place, how=how, left=left, trains=False)
        steps = range(place.step, self.steps_per_epoch)
        made: Any = self.tf_data(here.rank, here.size, place.epoch, place.step, place.skip)
        with self.coded_errors():
            for step, batch in zip(steps, made, strict=True):
                after = place.epoch * self.steps_per_epoch + step + 1
                self.advance(Position.of(after, self.steps_per_epoch))
                tape.taken(place.epoch, step, place.skip if step == place.step else 0)
                yield batch
        tape.settle()

    def coded_errors(self) -> CodedErrors:
        """Returns a context in which TensorFlow's error about the source gives way to its own."""
        return CodedErrors(self._plan.failures)
