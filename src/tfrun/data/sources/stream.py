"""Any `tf.data` pipeline as a source: read in sequence, by position."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import errors

_WHERE = "Dataset.from_tf_data"


class StreamSource:
    """The elements of a `tf.data.Dataset` that `make` returns; every worker walks through all.

    Args:
      make: returns the samples of an epoch. Takes the epoch, a scalar int64 tensor, if it has a
        parameter. Called while a graph is built.
      samples: how many an epoch has; counted in one walk through the data where neither this nor
        the cardinality says it. With it nothing is computed here, so that the source may be made
        before a strategy.
    """

    sample_bytes: float | None = None

    def __init__(self, make: Callable[..., tf.data.Dataset], samples: int | None) -> None:
        takes_epoch = bool(inspect.signature(make).parameters)
        self._make = make if takes_epoch else lambda _: make()
        self._samples = samples if samples is not None else _count(self._first)
        if self._samples == 0:
            raise errors.empty(_WHERE)
        if samples is None:
            _ = self.spec  # it is refused here

    @functools.cached_property
    def _first(self) -> tf.data.Dataset:
        return self._make(tf.constant(0, tf.int64))

    @functools.cached_property
    def spec(self) -> Any:
        """The structure of an element."""
        spec = self._first.element_spec
        if not all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(spec)):
            raise errors.bad_argument(
                "its elements are not all dense tensors", _WHERE, "dense tensors of fixed shape"
            )
        return spec

    def __len__(self) -> int:
        return self._samples

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        raise NotImplementedError("a stream has no random access")

    def global_batches(self, batch: int, steps: int, start: int, stop: int) -> tf.data.Dataset:
        """Returns (number, batch) of the steps [start, stop), counted over epochs."""
        first_epoch, first_step = divmod(start, steps)

        def epoch_batches(epoch):
            skipped = tf.where(epoch == first_epoch, tf.constant(first_step, tf.int64), 0)
            made = self._make(epoch).skip(skipped * batch).batch(batch)
            return made.enumerate(skipped).map(lambda i, one: (epoch * steps + i, one))

        epochs = tf.data.Dataset.range(first_epoch, -(-stop // steps))
        return epochs.flat_map(epoch_batches).take(stop - start)


def check_batch(number: int, expected: int, size: int, expected_size: int) -> None:
    """Refuses a pipeline that gave other batches than its length promised.

    Raises:
      UsageError: TFRUN-607.
    """
    if (number, size) != (expected, expected_size):
        raise errors.bad_argument(
            "the pipeline did not give as many samples as it has said",
            _WHERE,
            "the same number of samples in every epoch",
            "Pass `samples=`, or make the pipeline deterministic",
        )


def _count(dataset: tf.data.Dataset) -> int:
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise errors.bad_argument(
            "the pipeline repeats forever", _WHERE, "one epoch", "Leave out `.repeat()`"
        )
    if cardinality >= 0:
        return cardinality
    return int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))
