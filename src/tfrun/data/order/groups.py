"""Groups the batches that one call of Python reads, as each call costs 0.1 ms. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfrun.data.order.shards import Replicas, share_of_replicas, steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class BatchGroup:
    """Steps [first, last) of an epoch for `replicas` replicas from number `replica` on.

    All its elements, one for each step and replica, have the same number of samples.
    """

    epoch: int
    first: int
    last: int
    replica: int
    replicas: int


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The groups that make up the steps [start, stop), counted over epochs.

    They are numbered in `numbers`, and their elements follow each other as the pipeline yields
    them: step by step, and in a step replica by replica.

    Attributes:
      samples: of an epoch.
      batch: samples of a global batch.
      replicas: those of this pipeline.
      size: most steps of a group; 0 where each element has to be read for itself.
      start: the first step. The first group is this step alone, so that it comes soon.
      stop: the step before which to end.
      skip: samples at the beginning of each batch that are not read.
    """

    samples: int
    batch: int
    replicas: Replicas
    size: int
    start: int
    stop: int
    skip: int = 0

    @property
    def numbers(self) -> tuple[int, int]:
        """Numbers [begin, end) of the groups."""
        epoch, step = divmod(self.stop - 1, self.steps)
        of_next_step = step // self.size + 1 if self._in_runs(step) else self._of_step(step + 1)
        return self._first - 1, epoch * self._per_epoch + of_next_step

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return steps_per_epoch(self.samples, self.batch)

    def group(self, number: int) -> BatchGroup:
        """Returns the group of this number; it may have no step."""
        epoch, place = divmod(max(number, self._first), self._per_epoch)
        begin, end = self.start, self.stop
        if number < self._first:
            end = min(end, begin + 1)
        elif number == self._first:
            begin += 1
        first, last, replica, replicas = self._at(place)
        passed = epoch * self.steps
        first, last = max(first, begin - passed), min(last, end - passed)
        return BatchGroup(epoch=epoch, first=first, last=last, replica=replica, replicas=replicas)

    def positions(self, group: BatchGroup) -> NDArray[np.int64]:
        """Returns the positions in the epoch's order of each element: [elements, samples]."""
        rank = self.replicas.first + group.replica
        those = Replicas(first=rank, count=group.replicas, total=self.replicas.total)
        step = min(group.first, group.last - 1)  # a group without a step has a shape too
        begin, end = share_of_replicas(step, self.samples, self.batch, those, self.skip)
        steps = np.arange(max(group.last - group.first, 0), dtype=np.int64)
        positions = begin + steps[:, None] * self.batch + np.arange(end - begin)
        width = (end - begin) // group.replicas
        return positions.reshape(len(steps) * group.replicas, width)

    def block(self, group: BatchGroup, indices: int) -> BatchGroup:
        """Returns the group with its neighbours, as far as they make up about `indices` samples.

        All groups of a block have the same block, but for the first step: that is to come soon.
        """
        is_first = group.epoch * self.steps + group.first == self.start
        if is_first or group.first >= self._full or not self._in_runs(group.first):
            return group
        width = max(self.batch * self.replicas.count // self.replicas.total, 1)
        steps = self.size * max(indices // (width * self.size), 1)
        first = group.first // steps * steps
        last = min(first + steps, self._full)
        return dataclasses.replace(group, first=first, last=last)

    @property
    def _full(self) -> int:
        return self.samples // self.batch

    def _in_runs(self, step: int) -> bool:
        """Whether neighbouring steps have elements of the same size as this one."""
        even = self.replicas.count == 1 or self.batch % self.replicas.total == 0
        return self.size > 0 and even and step < self._full

    @property
    def _runs(self) -> int:
        return -(-self._full // self.size) if self._in_runs(0) else 0

    @property
    def _per_epoch(self) -> int:
        return self._of_step(self.steps)

    @property
    def _first(self) -> int:
        epoch, step = divmod(self.start, self.steps)
        return epoch * self._per_epoch + self._of_step(step)

    def _of_step(self, step: int) -> int:
        """Number in the epoch of the first group that has this step."""
        if self._in_runs(step):
            return step // self.size
        return self._runs + (step - (self._full if self._runs else 0)) * self.replicas.count

    def _at(self, place: int) -> tuple[int, int, int, int]:
        """First step, last step, first replica and replicas of the epoch's group `place`."""
        if place < self._runs:
            first = place * self.size
            return first, min(first + self.size, self._full), 0, self.replicas.count
        step, replica = divmod(place - self._runs, self.replicas.count)
        step += self._full if self._runs else 0
        return step, step + 1, replica, 1
