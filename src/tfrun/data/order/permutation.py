"""A keyed permutation: sample i of an epoch's order is a pure function of (seed, epoch, i).

A Feistel network over Z_a x Z_b, a * b just above n, whose results outside [0, n) are encrypted
again until they fall inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002,
their generalized-Feistel and cycle-walking constructions). It needs no memory and seeks in O(1).

`tf.random.experimental.index_shuffle` is not used: TensorFlow 2.21 truncates its keys to half of
the block (8 bits below 65,537 samples, so that seeds 0 and 256 give one order), and for
n = 2**16 + 1, 2**18 + 1, ... it is no permutation (tests/unit/test_data_permutation.py).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# From 12 rounds on, all orders of 2 to 6 samples are equally frequent (chi-square).
ROUNDS = 12
# Indices are made this many at once: numpy's overhead for a call is that of ~1000 indices.
CHUNK = 4096

_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


def permute(positions: NDArray, samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Returns the samples that stand at `positions` of an epoch's order.

    Args:
      positions: integers in [0, samples), any shape [k].
      samples: number of samples n, 1 to 2**62.
      seed: any integer; only its lowest 64 bits count.
      epoch: from 0.

    Returns:
      int64 of shape [k]. `permute(arange(n), n, seed, epoch)` is a permutation of arange(n).
    """
    rows = math.isqrt(samples - 1) + 1
    columns = -(-samples // rows)
    keys = _round_keys(seed, epoch)
    result = np.asarray(positions).astype(np.uint64)
    walking, values = slice(None), result
    while True:
        values = _encrypt(values, np.uint64(rows), np.uint64(columns), keys)
        result[walking] = values
        outside = values >= np.uint64(samples)
        if not outside.any():
            return result.astype(np.int64)
        walking = np.arange(result.size)[walking][outside]
        values = values[outside]


def sample_keys(samples: NDArray[np.int64], seed: int, epoch: int, stage: int) -> NDArray[np.int64]:
    """Returns a seed for each sample, for random functions that must not depend on the worker.

    Args:
      samples: indices of the samples, shape [k].
      seed: the data's seed.
      epoch: from 0; the same sample gets another seed in each epoch.
      stage: number of the random function, so that two of them draw different numbers.

    Returns:
      int64 of shape [k, 2], as `tf.random.stateless_*` takes it.
    """
    first = np.uint64(_mix(_mix(_mix(seed) ^ epoch) ^ (stage + 1)))
    keys = np.empty((samples.size, 2), np.int64)
    keys[:, 0] = first.astype(np.int64)
    keys[:, 1] = samples
    return keys


class Order:
    """The order of each epoch: shuffled by the keyed permutation, or as it stands.

    Keeps the last chunk of indices, because neighbouring steps need neighbouring positions.
    """

    def __init__(self, *, samples: int, seed: int, shuffle: bool) -> None:
        self.samples, self.seed, self.shuffle = samples, seed, shuffle
        self._chunk: tuple[tuple[int, int], NDArray[np.int64]] | None = None

    def indices(self, epoch: int, begin: int, end: int) -> NDArray[np.int64]:
        """Returns the samples at the positions [begin, end) of `epoch`, int64."""
        if not self.shuffle:
            return np.arange(begin, end)
        parts = []
        while begin < end:
            number, offset = divmod(begin, CHUNK)
            chunk = self._chunk_of(epoch, number)
            stop = min(offset + end - begin, CHUNK)
            parts.append(chunk[offset:stop])
            begin += stop - offset
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def at(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the samples at these positions of `epoch`, in the same shape."""
        if not self.shuffle:
            return positions
        return permute(positions.ravel(), self.samples, self.seed, epoch).reshape(positions.shape)

    def _chunk_of(self, epoch: int, number: int) -> NDArray[np.int64]:
        kept = self._chunk  # read once: several threads may read ahead
        if kept is not None and kept[0] == (epoch, number):
            return kept[1]
        first = number * CHUNK
        positions = np.arange(first, min(first + CHUNK, self.samples))
        chunk = permute(positions, self.samples, self.seed, epoch)
        self._chunk = (epoch, number), chunk
        return chunk


def _encrypt(values: NDArray[np.uint64], rows, columns, keys: list[np.uint64]):
    left, right = np.divmod(values, columns)
    scratch = np.empty_like(left), np.empty_like(left)
    for number, key in enumerate(keys):
        if number % 2 == 0:
            _add_hash(left, right, rows, key, scratch)
        else:
            _add_hash(right, left, columns, key, scratch)
    left *= columns
    left += right
    return left


def _add_hash(target: NDArray[np.uint64], source: NDArray[np.uint64], size, key, scratch) -> None:
    """target = (target + hash(key, source)) mod size, in place."""
    value, other = scratch
    np.add(source, key, out=value)
    np.right_shift(value, _HALF, out=other)
    value ^= other
    value *= _MULTIPLIER
    np.right_shift(value, _HALF, out=other)
    value ^= other
    value *= _MULTIPLIER
    value >>= _HALF
    value *= size  # the high half of value * size is uniform in [0, size)
    value >>= _HALF
    target += value
    # Below `size` the difference wraps around to an enormous number.
    np.subtract(target, size, out=other)
    np.minimum(target, other, out=target)


def _round_keys(seed: int, epoch: int) -> list[np.uint64]:
    state = _mix(_mix(seed) ^ epoch)
    return [np.uint64(_mix(state + number * _ODD)) for number in range(1, ROUNDS + 1)]


def _mix(value: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), on Python integers."""
    value = (value + _ODD) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
