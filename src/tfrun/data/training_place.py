"""How far training has come in a dataset, and what the rest of tfrun asks of it."""

from __future__ import annotations

import itertools
from typing import Any

from tfrun.data.order.position import Position
from tfrun.data.order.reading_plan import CodedErrors, ReadingPlan
from tfrun.data.order.shards import Replicas, share_of_replicas
from tfrun.data.sources.compressed import FileShards
from tfrun.data.sources.source import Tolerant
from tfrun.data.sources.stream import StreamSource

_numbers = itertools.count()


class TrainingPlace:
    """The part of a `tfrun.Dataset` that scripts do not use."""

    def __init__(self, plan: ReadingPlan) -> None:
        self.plan = plan
        self._position = Position()
        self._sought = False
        # The n-th dataset of a script is the same one on all workers and in all rounds.
        self.name = f"data{next(_numbers)}"

    def start(self, *, whole_epochs: bool = True) -> tuple[Position, bool]:
        """Begins a pass of training: returns where, and whether somebody has set that place.

        With `whole_epochs` it begins at the next epoch, unless the position was set.
        """
        sought, self._sought = self._sought, False
        if whole_epochs and not sought:
            self._position = self._position.next_epoch()
        return self._position, sought

    def stands(self, place: tuple[Position, bool] | None) -> tuple[Position, bool]:
        """Goes back to where it stood before a call, if given; returns where it stands."""
        self._position, self._sought = place or (self._position, self._sought)
        return self._position, self._sought

    def advance(self, position: Position) -> None:
        """Notes how far training has come."""
        self._position = position

    def share(self, step: int, replicas: Replicas, skip: int = 0) -> tuple[int, int]:
        """Returns the positions [begin, end) in an epoch's order that these replicas read."""
        return share_of_replicas(step, self.plan.order.samples, self.plan.batch, replicas, skip)

    @property
    def is_by_file(self) -> bool:
        """Whether files decide who reads which sample: `shard="FILE"`."""
        return isinstance(self.plan.source, FileShards)

    def described(self) -> dict[str, Any]:
        """Returns what a ledger says of this data, see `ledger.writer.Header`."""
        source, order = self.plan.source, self.plan.order
        return {
            "data": self.name,
            "samples": order.samples,
            "batch": self.plan.batch,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "by": "position" if isinstance(source, StreamSource) else "sample",
            "tolerant": source.number if isinstance(source, Tolerant) else None,
        }

    def coded_errors(self) -> CodedErrors:
        """Returns a context in which TensorFlow's error about the source gives way to its own."""
        return CodedErrors(self.plan.failures)
