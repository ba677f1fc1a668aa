"""Checks whether all workers pass the same arrays to `fit`, `evaluate` or `predict`.

Each worker makes the data by running the script and takes its own rows of each batch. Where no
seed makes it the same on all, or the script has divided it by rank, some rows are trained twice and
others never, and nothing fails. So workers compare what a few bytes of each array come to.

What TensorFlow or Python make batch by batch is not compared: to read a batch is to take it away,
and noise of each worker's own in the rows that it trains is meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.data.ops import from_tensor_slices_op

from tfrun.data.dataset import Dataset
from tfrun.data.order.repeatable import steps_of
from tfrun.data.sources.source import ArraySource

ARGUMENTS = ("x", "y", "sample_weight", "validation_data")
BYTES = 128 << 10  # that are looked at of each argument
_BLOCKS = 64  # evenly spread over an array
_PICKS = 4096  # single numbers, of an array whose bytes do not lie one behind the other
_TEXTS = 1024  # or other objects, the beginnings of which are looked at
VALUES = 256  # floating numbers of each argument, to tell rounding from other data
_TOLERANCE = 1e-3  # of the largest of them
_COMPARED = "biufcSUmMO"  # kinds of dtypes; in others there may be bytes that nobody has set


def arrays_of(data: Any) -> list[NDArray]:
    """The arrays behind data that every worker is to have the whole of; those that are known."""
    if isinstance(data, Dataset):
        source = data.plan.source
        return list(source.arrays) if isinstance(source, ArraySource) else []
    if isinstance(data, tf.data.Dataset):
        return _behind(data)
    if isinstance(data, Mapping):
        return [array for name in sorted(data, key=str) for array in arrays_of(data[name])]
    if isinstance(data, list | tuple):
        return [array for part in data for array in arrays_of(part)]
    if isinstance(data, np.ndarray):
        return [data]
    if isinstance(data, tf.Tensor):
        return _values(data)
    if hasattr(data, "to_numpy"):  # of pandas
        return [np.asarray(data.to_numpy())]
    return []


def _behind(dataset: tf.data.Dataset) -> list[NDArray]:
    """What `from_tensor_slices` was given, and the seeds of `shuffle`.

    Of texts their ends: folders may be a machine's own. TensorFlow keeps both in private attributes
    (tensorflow/python/data/ops/from_tensor_slices_op.py, shuffle_op.py).
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy == tf.data.experimental.AutoShardPolicy.OFF:  # each worker has its own
        return []
    return [array for step in steps_of(dataset) for array in _of_step(step)]


def _of_step(step: Any) -> list[NDArray]:
    if isinstance(step, from_tensor_slices_op._TensorSliceDataset):
        tensors = step._tensors
        found = (_names(t) if t.dtype == tf.string else _values(t) for t in tensors)
        return [array for arrays in found for array in arrays]
    if type(step).__name__ == "_ShuffleDataset":  # another TensorFlow may have no such class
        seeds = (getattr(step, name, None) for name in ("_seed", "_seed2"))
        return [array for seed in seeds for array in _values(seed)]
    return []


def _names(tensor: Any) -> list[NDArray]:
    """How many texts a tensor has, and of some what follows the last slash."""
    if not isinstance(tensor, tf.Tensor) or tf.is_symbolic_tensor(tensor):
        return []
    count = int(tf.size(tensor))
    picks = np.linspace(0, max(count - 1, 0), min(count, _TEXTS)).astype(np.int64)
    texts = tf.gather(tf.reshape(tensor, [-1]), picks).numpy()
    return [np.asarray([b"%d" % count, *(text.rpartition(b"/")[2] for text in texts)], object)]


def _values(tensor: Any) -> list[NDArray]:
    """A tensor as an array that is no copy, where there is such a one; texts are copied."""
    if not isinstance(tensor, tf.Tensor) or tf.is_symbolic_tensor(tensor):
        return []
    if tensor.dtype == tf.string:
        return [np.asarray(tensor.numpy(), object)]
    if "CPU" not in tensor.device:
        return []
    try:
        return [np.asarray(memoryview(tensor))]  # type: ignore[arg-type]
    except (ValueError, BufferError):  # bfloat16 and the like; rows of ragged and sparse tensors
        return []


def digest_of_all(arguments: Mapping[str, Any]) -> int:
    """64 bits of shapes, dtypes and some bytes of all arrays that a call was given, signed."""
    arrays = [arrays_of(arguments.get(name)) for name in ARGUMENTS]
    return _number(str([_digest(of_one, of_one) for of_one in arrays]).encode())


def _digest(arrays: Sequence[NDArray], read: Sequence[NDArray]) -> int:
    """64 bits of the shapes and dtypes of some arrays, and of some bytes of those to be read."""
    described = str([(array.shape, str(array.dtype)) for array in arrays]).encode()
    return _number(described, *(_bytes(sample(array, BYTES // len(arrays))) for array in read))


def _number(*parts: bytes) -> int:
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(part)
    return int.from_bytes(made.digest(), "little", signed=True)


def sketch(data: Any) -> tuple[int, NDArray[np.float64]]:
    """What has to be equal, and floating numbers that have to be nearly equal, shape [VALUES].

    Machines of other kinds may round what a script computes in other ways.
    """
    arrays = arrays_of(data)
    exact = [array for array in arrays if array.dtype.kind != "f"]
    floats = [array for array in arrays if array.dtype.kind == "f"]
    values = [np.zeros(0)] + [sample(a, BYTES // len(floats)).astype(np.float64) for a in floats]
    joined = np.concatenate(values)
    picked = np.linspace(0, max(len(joined) - 1, 0), VALUES).astype(np.int64)
    return _digest(arrays, exact), joined[picked] if len(joined) else np.zeros(VALUES)


def sketches(arguments: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The `sketch` of each argument of a call, shapes [arguments] and [arguments, VALUES]."""
    made = [sketch(arguments.get(name)) for name in ARGUMENTS]
    return np.array([exact for exact, _ in made], np.int64), np.stack([few for _, few in made])


def sample(array: NDArray, limit: int) -> NDArray:
    """Returns some of the array's elements, evenly spread, shape [n].

    Args:
      array: of any shape.
      limit: bytes that they have at most; a block of at least one element is taken everywhere.
    """
    if array.nbytes <= limit:
        return array.ravel()
    if not array.flags.c_contiguous:
        picks = np.linspace(0, array.size - 1, _PICKS).astype(np.int64)
        return array[np.unravel_index(picks, array.shape)]
    flat = array.reshape(-1)
    block = max(1, limit // array.itemsize // _BLOCKS)
    starts = np.linspace(0, flat.size - block, _BLOCKS).astype(np.int64)
    return np.concatenate([flat[start : start + block] for start in starts])


def _bytes(values: NDArray) -> bytes:
    if values.dtype.kind not in _COMPARED:
        return b""
    if values.dtype.kind == "O":  # others may show where they lie in memory
        picks = np.linspace(0, max(len(values) - 1, 0), min(len(values), _TEXTS)).astype(np.int64)
        plain = [v for v in values[picks].tolist() if isinstance(v, str | bytes | int | float)]
        return repr([v[:64] if isinstance(v, str | bytes) else v for v in plain]).encode(
            errors="replace"
        )
    return np.ascontiguousarray(values).tobytes()


def differing(exact: NDArray[np.int64], values: NDArray[np.float64]) -> list[str]:
    """Returns the arguments that differ between workers, or between then and now.

    Args:
      exact: the first part of each `sketch`, shape [workers, arguments].
      values: the second part, shape [workers, arguments, VALUES].
    """
    found: list[str] = []
    for column, name in enumerate(ARGUMENTS):
        rows = values[:, column]
        finite = np.abs(rows[0][np.isfinite(rows[0])])
        slack = _TOLERANCE * float(finite.max(initial=0.0))
        alike = all(np.allclose(row, rows[0], 0.0, slack, equal_nan=True) for row in rows[1:])
        if not alike or len(set(exact[:, column].tolist())) > 1:
            found.append(name)
    return found


def told(names: Sequence[str], call: str, where: str) -> str:
    """What a person reads.

    Args:
      names: the arguments that differ.
      call: "model.fit".
      where: file and line; "" when nobody knows.
    """
    verb = "is" if len(names) == 1 else "are"
    place = f" ({where})" if where else ""
    return (
        f"{' and '.join(names)} of {call}{place} {verb} not the same on all workers. Each worker "
        "takes its rows of a batch from its own data, so some rows are used twice and others "
        "never. Seed whatever makes or shuffles the data, as in np.random.default_rng(0), and do "
        "not divide it by rank"
    )
