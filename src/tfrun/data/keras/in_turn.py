"""Data that a script has distributed itself, where workers take turns for several replicas."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.keras import division
from tfrun.job.world import world


class InTurn(tf.distribute.DistributedDataset):
    """Data that a script has distributed for a loop of its own, whose replicas take turns.

    Attributes:
      given: what it has distributed.
    """

    given: Any

    @property
    @abc.abstractmethod
    def plain(self) -> Any:
        """What TensorFlow makes of it, where each worker has one replica."""


class Divided:
    """Data that is divided among the replicas of the job.

    Args:
      make: distributes it.
      strategy: by which.
    """

    def __init__(self, make: Callable[[], Any], strategy: Any) -> None:
        # Now: later there may be another answer, and the data stays what it is.
        self._every = division.reads_all(strategy, "replicas")
        with division.among("replicas"):
            self.made = make()

    def steps(self) -> division.StepsInTurn:
        """An iteration over it."""
        with division.among("replicas"):
            iterator = iter(self.made)
        return division.StepsInTurn(iterator, self.made.element_spec, every=self._every)


def given(dataset: Any) -> Any:
    """What a call of Keras's reads that is given some data.

    Raises:
      UsageError: TFRUN-107 where the script has distributed it, for a loop whose replicas take
        turns.
    """
    if not isinstance(dataset, InTurn):
        return dataset
    here = world()
    if here.replicas == here.size:
        return dataset.plain
    raise errors.one_replica_each("a distributed dataset", here.replicas, here.size)
