"""Reads batches in Python for the pipeline, a group at a time, or finds a share's bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data.order.groups import BatchGroup, Groups
from tfrun.data.order.permutation import sample_keys
from tfrun.data.order.reading_plan import ReadingPlan
from tfrun.data.order.shards import Replicas
from tfrun.data.sources.source import Tolerant
from tfrun.data.sources.stream import check_batch

STEPS, BYTES = 256, 4 << 20  # at most so many steps, and so much data, in a group
# The indices of several groups are made at once: NumPy's overhead is that of ~1000 indices.
BLOCK = 8192


class BatchReader:
    """Reads the share of some replicas in the steps [start, stop).

    Args:
      plan: what to read.
      replicas: for whom.
      start: the first step.
      stop: the step before which to end.
      skip: samples at the beginning of the one step's batch that are not read.

    Attributes:
      numbers: the groups' numbers [begin, end).
      dtypes: what `read` returns.
    """

    def __init__(
        self, plan: ReadingPlan, replicas: Replicas, start: int, stop: int, skip: int
    ) -> None:
        self._plan, self._replicas, self._skip = plan, replicas, skip
        self._groups = Groups(
            samples=plan.order.samples,
            batch=plan.batch,
            replicas=replicas,
            size=0 if skip else _steps_together(plan, replicas),
            start=start,
            stop=stop,
            skip=skip,
        )
        self._block: tuple[tuple[int, int, int], NDArray[np.int64]] | None = None
        self.numbers = self._groups.numbers
        self.dtypes: list[tf.DType] = [leaf.dtype for leaf in tf.nest.flatten(plan.source.spec)]
        if plan.is_random:
            self.dtypes.append(tf.int64)

    def read(self, number: np.int64) -> list[NDArray]:
        """Returns the arrays of a group, each [elements, samples, ...], one for each leaf.

        If a stage is random, also the seeds of the samples: [elements, samples, stages, 2].
        """
        group = self._groups.group(int(number))
        chosen = self._indices(group)
        (elements, width), indices, source = chosen.shape, chosen.ravel(), self._plan.source
        with self._plan.noting_failures():
            if isinstance(source, Tolerant):
                indices, leaves = source.readable(indices)
                width = len(indices)  # of the one element
            else:
                leaves = source.read(indices)
        if self._plan.is_random:
            leaves = [*leaves, self.keys(indices, group.epoch)]
        return [leaf.reshape(elements, width, *leaf.shape[1:]) for leaf in leaves]

    def slice(self, element, batch, bounds_of) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns the leaves and seeds of these replicas' part of a global batch, as tensors.

        Args:
          element: step * replicas + replica, a scalar tensor.
          batch: the batch with the number of its step.
          bounds_of: calls `bounds`.
        """
        number, leaves = batch[0], tf.nest.flatten(batch[1])
        bounds = [element, number, tf.shape(leaves[0])[0]]
        begin, end, keys = tf.numpy_function(bounds_of, bounds, [tf.int64] * 3)
        return [leaf[begin:end] for leaf in leaves], keys

    def bounds(self, element: np.int64, number: np.int64, size: np.int32):
        """Returns where these replicas' part of a batch of `size` begins, its end and its seeds."""
        plan = self._plan
        expected, replica = divmod(int(element), self._replicas.count)
        epoch, step = divmod(expected, plan.steps)
        first, last = plan.share(step, 0, 1)
        with plan.noting_failures():
            check_batch(int(number), expected, int(size), last - first)
        rank, total = self._replicas.first + replica, self._replicas.total
        begin, end = plan.share(step, rank, total, self._skip)
        keys = self.keys(np.arange(begin, end), epoch)
        return np.int64(begin - first), np.int64(end - first), keys

    def _indices(self, group: BatchGroup) -> NDArray[np.int64]:
        """The samples of a group: [elements, samples]."""
        order, block = self._plan.order, self._groups.block(group, BLOCK)
        if not order.shuffle or block == group:
            return order.at(group.epoch, self._groups.positions(group))
        place, kept = (block.epoch, block.first, block.replica), self._block  # other threads
        if kept is None or kept[0] != place:
            kept = place, order.at(block.epoch, self._groups.positions(block))
            self._block = kept
        begin, end = group.first - block.first, max(group.last, group.first) - block.first
        return kept[1][begin * group.replicas : end * group.replicas]

    def keys(self, indices: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Returns the seeds of some samples: [samples, stages, 2]."""
        stages, seed = self._plan.stages, self._plan.order.seed
        keys = np.zeros((len(indices), len(stages), 2), np.int64)
        for number, stage in enumerate(stages):
            if stage.is_random:
                keys[:, number] = sample_keys(indices, seed, int(epoch), number)
        return keys


def _steps_together(plan: ReadingPlan, replicas: Replicas) -> int:
    if isinstance(plan.source, Tolerant):
        return 0  # nobody knows how many samples will be left of each element
    sample: Any = plan.source.sample_bytes
    if sample is None:
        return 1
    step = sample * plan.batch * replicas.count / replicas.total
    return int(min(max(BYTES // max(step, 1), 1), STEPS))
