"""What a worker's replicas have handed in of a step, until the last of them sums for all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tfrun.collective import collective
from tfrun.collective.summation_order import Adder
from tfrun.engine.host_collective_ops import Sum, joined_along


@dataclass
class Early:
    """What is summed of a step as soon as it is there.

    Attributes:
      wanted: the sum.
      adder: has what this worker's replicas have handed in.
      gradients: which of it may travel compressed.
    """

    wanted: Sum
    adder: Adder
    gradients: collective.Gradients | None = None

    def add(self, number: int, arrays: Sequence[np.ndarray]) -> None:
        """Takes what a replica has handed in."""
        values, self.gradients = self.wanted.read(arrays)
        self.adder.add(number, values)

    def sums(self, group: collective.Collective) -> Callable[[], list[np.ndarray]]:
        """Sums over all workers, when it is called."""
        return functools.partial(
            group.all_reduce_parts, self.adder.sums(), self.gradients, self.adder.dtypes
        )


class Parts:
    """What the replicas of this worker have handed in of a step, of which all get all.

    Args:
      axes: along which the parts of each tensor are put one after the other.
    """

    def __init__(self, axes: Sequence[int]) -> None:
        self._axes = axes
        self._came: dict[int, Sequence[np.ndarray]] = {}

    def add(self, number: int, arrays: Sequence[np.ndarray], is_first: bool) -> None:
        """Takes what a replica has handed in."""
        if is_first:
            self._came.clear()
        self._came[number] = arrays

    def of_all(self, group: collective.Collective) -> list[np.ndarray]:
        """Those of all workers' replicas."""
        if not self._axes:
            return []
        parts = [self._came[number] for number in sorted(self._came)]
        found = joined_along(self._axes, group.all_gather_parts(parts))
        self._came.clear()  # not before: where a peer has gone others hand in as well
        return found

    def of_workers(
        self, group: collective.Collective, arrays: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Those of all workers, each of which counts as one."""
        return joined_along(self._axes, group.all_gather(arrays)) if self._axes else []


def kinds_of(wanted: Sum, rows: Sequence[tf.Tensor]) -> tuple[list[tf.DType], list[tf.TensorShape]]:
    """Dtypes and shapes of the sums, and of the rows of all."""
    shapes = [tensor.shape for tensor in wanted.tensors]
    shapes += [tf.TensorShape([None, *row.shape[1:]]) for row in rows]
    return [tensor.dtype for tensor in (*wanted.tensors, *rows)], shapes
