"""Where samples come from: things with a length that can be read at any index."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.shared_arrays import share_arrays
from tfrun.job.errors import TfrunError
from tfrun.job.world import world


class Source(Protocol):
    """Random access to samples, from any thread.

    Attributes:
      spec: the structure of one sample, a nest of `tf.TensorSpec`.
    """

    spec: Any

    def __len__(self) -> int: ...

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        """Returns one array of shape [k, ...] for each leaf of `spec`."""
        ...


class ArraySource:
    """A nest of arrays; a sample is a row of each. Nothing is copied but the rows asked for."""

    def __init__(self, arrays: Any) -> None:
        # asanyarray: a memory map stays one.
        self.nest = tf.nest.map_structure(np.asanyarray, arrays)
        self.arrays: list[NDArray] = tf.nest.flatten(self.nest)
        where = "Dataset.from_arrays"
        if not self.arrays:
            raise errors.empty(where)
        if any(array.ndim == 0 for array in self.arrays):
            raise errors.bad_argument("a single number is no array of samples", where, "arrays")
        lengths = {str(i): len(array) for i, array in enumerate(self.arrays)}
        if len(set(lengths.values())) > 1:
            raise errors.different_lengths(lengths, where)
        if not len(self):
            raise errors.empty(where)
        self.spec = tf.nest.map_structure(
            lambda array: tf.TensorSpec(array.shape[1:], tf.as_dtype(array.dtype)), self.nest
        )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        return [_take(array, indices) for array in self.arrays]


def array_source(arrays: Any) -> ArraySource:
    """Returns a source of arrays, or of what a function returns, shared within the machine."""
    run_dir, here = os.environ.get("TFRUN_RUN_DIR"), world()
    if callable(arrays):
        return ArraySource(share_arrays(lambda: ArraySource(arrays()).nest, run_dir, here))
    source = ArraySource(arrays)
    if any(isinstance(array, np.memmap) for array in source.arrays):
        return source
    return ArraySource(share_arrays(lambda: source.nest, run_dir, here, own=source.nest))


class SequenceSource:
    """Anything with `__len__` and `__getitem__`, whose items are samples of one structure."""

    def __init__(self, items: Any) -> None:
        if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
            raise errors.bad_argument(
                f"a {type(items).__name__} cannot be read at any index",
                "Dataset.from_source",
                "an object with __len__ and __getitem__",
            )
        if not len(items):
            raise errors.empty("Dataset.from_source")
        self._items = items
        self.spec = tf.nest.map_structure(_spec_of_value, self._item(0))

    def __len__(self) -> int:
        return len(self._items)

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        specs = tf.nest.flatten(self.spec)
        rows = [self._leaves(int(index)) for index in indices]
        return [
            np.array([row[i] for row in rows], spec.dtype.as_numpy_dtype).reshape(
                len(rows), *spec.shape
            )
            for i, spec in enumerate(specs)
        ]

    def _item(self, index: int) -> Any:
        try:
            return self._items[index]
        except Exception as error:
            raise errors.bad_sample(index, f"{type(error).__name__}: {error}") from error

    def _leaves(self, index: int) -> list[Any]:
        item = self._item(index)
        try:
            tf.nest.assert_same_structure(self.spec, item)
        except (TypeError, ValueError):
            raise errors.bad_sample(index, "its structure is not that of sample 0") from None
        leaves: list[Any] = tf.nest.flatten(item)
        for leaf, spec in zip(leaves, tf.nest.flatten(self.spec), strict=True):
            if np.shape(leaf) != tuple(spec.shape):
                raise errors.bad_sample(
                    index, f"its shape {np.shape(leaf)} is not {tuple(spec.shape)} as in sample 0"
                )
        return leaves


class Tolerant:
    """Leaves out the samples that a source cannot read, and counts them.

    Attributes:
      skipped: samples left out so far by this process.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.spec, self.skipped = source, source.spec, 0

    def __len__(self) -> int:
        return len(self.source)

    def readable(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[NDArray]]:
        """Returns the indices that could be read, and their samples as `Source.read` does."""
        try:
            return indices, self.source.read(indices)
        except TfrunError:
            good = np.array([i for i in indices if self._is_readable(i)], np.int64)
            self.skipped += len(indices) - len(good)
            return good, self.source.read(good)

    def _is_readable(self, index: np.int64) -> bool:
        try:
            self.source.read(np.array([index]))
        except TfrunError:
            return False
        return True


def batch_spec(spec: Any, batch: int | None) -> Any:
    """Returns the specification of a batch of samples; `batch` is None where it varies."""
    return tf.nest.map_structure(lambda leaf: tf.TensorSpec([batch, *leaf.shape], leaf.dtype), spec)


def _take(array: NDArray, indices: NDArray[np.int64]) -> NDArray:
    if array.dtype.hasobject or not array.flags.c_contiguous:
        return array[indices]
    result = _aligned_empty((len(indices), *array.shape[1:]), array.dtype)
    # "clip" writes into `out` directly, "raise" through a buffer; indices are in range.
    return np.take(array, indices, axis=0, out=result, mode="clip")


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """An array on a 64-byte boundary: TensorFlow takes it over without a copy (facts 15)."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _spec_of_value(value: Any) -> tf.TensorSpec:
    array = np.asarray(value)
    return tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))
