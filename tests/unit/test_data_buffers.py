"""Memory of batches is used again, and never too soon."""

from __future__ import annotations

import gc

import numpy as np
import tensorflow as tf

from tfrun.collective.buffers import KEPT, Buffers
from tfrun.data.dataset import Dataset
from tfrun.data.sources.source import ArraySource

BYTE = np.dtype(np.uint8)


def address(array) -> int:
    return array.ctypes.data


def test_memory_is_used_again_when_nothing_refers_to_it():
    buffers = Buffers()
    first = buffers.array((10, 100), BYTE)
    place = address(first)
    assert place % 64 == 0
    del first
    smaller = buffers.array((3,), np.dtype(np.float64))
    assert address(smaller) == place
    assert smaller.shape == (3,)


def test_what_was_used_last_is_used_again_first():
    """It is in the processor's caches."""
    buffers = Buffers()
    first, second = buffers.array((10,), BYTE), buffers.array((10,), BYTE)
    places = [address(first), address(second)]
    del first, second
    assert address(buffers.array((10,), BYTE)) == places[1]


def test_memory_is_not_used_again_while_a_view_of_a_view_lives():
    buffers = Buffers()
    made = buffers.array((8, 8), BYTE)
    made[:] = 7
    kept = made.reshape(-1)[5:50][::3]
    del made
    for _ in range(3):
        buffers.array((8, 8), BYTE)[:] = 1
    assert kept.tolist() == [7] * 15


def test_a_larger_array_gets_memory_of_its_own_and_not_all_of_it_is_kept():
    buffers = Buffers()
    small = buffers.array((10,), BYTE)
    del small
    assert buffers.array((10_000,), BYTE).shape == (10_000,)
    held = [buffers.array((1000,), BYTE) for _ in range(3 * KEPT)]
    held.clear()
    assert len(buffers._free) == KEPT


def test_batches_that_somebody_keeps_do_not_change():
    """Tensors, slices of tensors and their NumPy arrays, over many groups of batches."""
    x = np.arange(20_000 * 16, dtype="float32").reshape(20_000, 16)
    data = Dataset.from_arrays((x, np.arange(20_000)), batch_size=16, shuffle=True)
    rows, kept = [], []
    for number, (batch, index) in enumerate(data):
        chosen = [batch, batch[3:9], batch.numpy(), tf.identity(batch)[:, :4]][number % 4]
        begin, end, width = [(0, 16, 16), (3, 9, 16), (0, 16, 16), (0, 16, 4)][number % 4]
        kept.append(chosen)
        rows.append((index.numpy()[begin:end].copy(), width))
    gc.collect()
    assert len(kept) == 1250
    for chosen, (index, width) in zip(kept, rows, strict=True):
        np.testing.assert_array_equal(chosen, x[index, :width])


def test_batches_that_nobody_keeps_share_some_memory():
    source = ArraySource(np.zeros((4096, 1024), np.float32))
    indices = np.arange(1024)
    places = {address(source.read(indices)[0]) for _ in range(50)}
    assert len(places) == 1
