"""Describes what a pipeline reads, and for whom: values that everything in this room shares."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.order.permutation import Order
from tfrun.data.order.position import Position
from tfrun.data.order.shards import share_of_step, steps_per_epoch
from tfrun.data.sources.source import Source, Tolerant


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
class ReadingPlan:
    """All that decides what the pipeline yields, but for the place to start and the replicas.

    Attributes:
      source: where the samples come from; a `Tolerant` leaves out what it cannot read.
      order: the order of each epoch.
      batch: samples in a global batch.
      stages: functions of one sample, in turn.
      prefetch: batches that are read ahead.
      failures: errors of the source, for whoever meets TensorFlow's error about them.

    Raises:
      UsageError: TFRUN-603 where a batch is larger than the data.
    """

    source: Source | Tolerant
    order: Order
    batch: int
    stages: tuple[Stage, ...] = ()
    prefetch: int = 2
    failures: deque[Exception] = field(default_factory=lambda: deque(maxlen=100), compare=False)

    def __post_init__(self) -> None:
        if self.batch > self.order.samples:
            raise errors.batch_too_large(self.batch, self.order.samples, "tfrun.Dataset")

    @property
    def steps(self) -> int:
        """Global batches of an epoch."""
        return steps_per_epoch(self.order.samples, self.batch)

    @property
    def is_random(self) -> bool:
        """Whether a stage takes a seed."""
        return any(stage.is_random for stage in self.stages)

    @contextlib.contextmanager
    def noting_failures(self) -> Iterator[None]:
        """Keeps an error of the block, of which TensorFlow passes on no more than the text."""
        try:
            yield
        except Exception as error:
            self.failures.append(error)
            raise

    def has(self, position: Position) -> bool:
        """Whether this is the place of a sample."""
        begin, end = self.share(position.step, 0, 1)
        in_order = position.epoch >= 0 and 0 <= position.step < self.steps
        return in_order and 0 <= position.skip < end - begin

    def share(self, step: int, rank: int, total: int, skip: int = 0) -> tuple[int, int]:
        """Returns the positions of one replica's part of a batch; see `share_of_step`."""
        return share_of_step(step, self.order.samples, self.batch, rank, total, skip)


class CodedErrors:
    """A context in which TensorFlow's error about the source gives way to the source's own."""

    def __init__(self, failures: Iterable[Exception]) -> None:
        self._failures = failures

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not isinstance(error, tf.errors.OpError):
            return
        # What was read ahead may have failed long before, and something else may fail now.
        for failure in tuple(self._failures):
            if f"{type(failure).__name__}: {failure}" in error.message:
                raise failure from error
