"""Sources of samples: things with a length that can be read at any index."""

from __future__ import annotations

import itertools
import logging
from contextlib import nullcontext
from threading import Lock
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from keras import tree
from numpy.typing import NDArray

from tfrun.collective.buffers import Buffers
from tfrun.data import errors
from tfrun.data.ledger import writer as ledger
from tfrun.data.sources.shared_arrays import share_arrays
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel

NAMED = 5  # samples that a worker names in its output

_tolerant = itertools.count()
_log = logging.getLogger("tfrun")


class Source(Protocol):
    """Random access to samples, from any thread.

    Attributes:
      spec: the structure of one sample, a nest of `tf.TensorSpec`.
      sample_bytes: how large a sample is, about; None if reading takes long whatever its size,
        so that no batch should wait for the next ones to be read with it.
    """

    spec: Any
    sample_bytes: float | None

    def __len__(self) -> int: ...

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        """Returns one array of shape [k, ...] for each leaf of `spec`."""
        ...


class ArraySource:
    """A nest of arrays; a sample is a row of each. Nothing is copied but the rows asked for.

    The memory of what `read` returns is used again when nothing refers to it any more.
    """

    def __init__(self, arrays: Any) -> None:
        # asanyarray: a memory map stays one. tf.data would stack what is in a list.
        self.nest = tf.nest.map_structure(np.asanyarray, tree.lists_to_tuples(arrays))
        self.arrays: list[NDArray] = tf.nest.flatten(self.nest)
        where = "Dataset.from_arrays"
        if not self.arrays:
            raise errors.empty(where)
        if any(array.ndim == 0 for array in self.arrays):
            raise errors.bad_argument("a single number is not an array of samples", where, "arrays")
        lengths = {str(i): len(array) for i, array in enumerate(self.arrays)}
        if len(set(lengths.values())) > 1:
            raise errors.different_lengths(lengths, where)
        if not len(self):
            raise errors.empty(where)
        self.spec = tf.nest.map_structure(
            lambda array: tf.TensorSpec(array.shape[1:], tf.as_dtype(array.dtype)), self.nest
        )
        total = sum(array.nbytes for array in self.arrays)
        self.sample_bytes: float | None = total / len(self)
        self._buffers = [Buffers() for _ in self.arrays]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        pairs = zip(self.arrays, self._buffers, strict=True)
        return [_take(array, indices, buffers) for array, buffers in pairs]


def array_source(arrays: Any) -> ArraySource:
    """Returns a source of arrays, or of what a function returns, shared within the machine."""
    run_dir, here = settings().run_dir, world()
    if callable(arrays):
        return ArraySource(share_arrays(lambda: ArraySource(arrays()).nest, run_dir, here))
    source = ArraySource(arrays)
    if any(isinstance(array, np.memmap) for array in source.arrays):
        return source
    return ArraySource(share_arrays(lambda: source.nest, run_dir, here, own=source.nest))


class SequenceSource:
    """Anything with `__len__` and `__getitem__`, whose items are samples of one structure."""

    sample_bytes: float | None = None

    def __init__(self, items: Any, concurrent: bool = False) -> None:
        if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
            raise errors.bad_argument(
                f"a {type(items).__name__} cannot be read at any index",
                "Dataset.from_source",
                "an object with __len__ and __getitem__",
            )
        if not len(items):
            raise errors.empty("Dataset.from_source")
        self._items = items
        # A file handle is shared by whoever seeks in it; pyarrow crashes or hangs.
        self._turn = nullcontext() if concurrent else Lock()
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
            with self._turn:
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

    Each of them is also reported to the job, whose last lines say how many there were on all
    workers and in all rounds.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.spec = source, source.spec
        self.sample_bytes: float | None = source.sample_bytes
        self.number, self._left_out = next(_tolerant), dict[int, str]()

    @property
    def skipped(self) -> int:
        """Samples that this process has left out, each counted once."""
        return len(self._left_out)

    def __len__(self) -> int:
        return len(self.source)

    def readable(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[NDArray]]:
        """Returns the indices that could be read, and their samples as `Source.read` does."""
        try:
            return indices, self.source.read(indices)
        except TfrunError:
            good = np.array([i for i in indices if self._is_readable(i)], np.int64)
            return good, self.source.read(good)

    def _is_readable(self, index: np.int64) -> bool:
        try:
            self.source.read(np.array([index]))
        except TfrunError as error:
            self._leave_out(int(index), error)
            return False
        return True

    def _leave_out(self, index: int, error: TfrunError) -> None:
        if index in self._left_out:
            return
        self._left_out[index] = error.code
        where = f" (in {error.where})" if error.where else ""
        # The n-th source of a script is the same one on all workers and in all rounds.
        ledger.left_out(self.number, index)
        channel.emit(reports.Skipped(source=self.number, sample=index, why=f"{error.what}{where}"))
        if len(self._left_out) <= NAMED:
            _log.warning("sample %d is left out: %s%s", index, error.what, where)


def batch_spec(spec: Any, batch: int | None) -> Any:
    """Returns the specification of a batch of samples; `batch` is None where it varies."""
    return tf.nest.map_structure(lambda leaf: tf.TensorSpec([batch, *leaf.shape], leaf.dtype), spec)


def _take(array: NDArray, indices: NDArray[np.int64], buffers: Buffers) -> NDArray:
    if array.dtype.hasobject or not array.flags.c_contiguous:
        return array[indices]
    result = buffers.array((len(indices), *array.shape[1:]), array.dtype)
    # "clip" writes into `out` directly, "raise" through a buffer; indices are in range.
    return np.take(array, indices, axis=0, out=result, mode="clip")


def _spec_of_value(value: Any) -> tf.TensorSpec:
    array = np.asarray(value)
    return tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))
