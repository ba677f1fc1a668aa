"""The order of samples: a permutation, uniform, the same for ever."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrun.data.order.permutation import CHUNK, Order, permute, sample_keys


@given(st.integers(1, 3000), st.integers(-(2**63), 2**64), st.integers(0, 2**40))
@settings(max_examples=80)
def test_it_is_a_permutation_for_every_number_of_samples(samples, seed, epoch):
    order = permute(np.arange(samples), samples, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(samples))


@pytest.mark.parametrize("samples", [1 << 16, (1 << 16) + 1, (1 << 18) + 1, 1_000_003])
def test_it_is_a_permutation_of_large_sets(samples):
    order = permute(np.arange(samples), samples, 1, 2)
    assert np.array_equal(np.bincount(order, minlength=samples), np.ones(samples))


@pytest.mark.parametrize("samples", [2**40 + 1, 2**62])
def test_positions_of_huge_sets_lead_to_different_samples_inside(samples):
    positions = np.concatenate([np.arange(10_000), samples - 1 - np.arange(10_000)])
    order = permute(positions, samples, 3, 0)
    assert len(np.unique(order)) == len(positions)
    assert order.min() >= 0
    assert order.max() < samples
    assert abs(order.mean() / samples - 0.5) < 0.02


def chi_square(counts, cells: int) -> float:
    """Chi-square over its degrees of freedom: 1 ± sqrt(2 / cells) for a uniform distribution."""
    counts = np.asarray(counts, float)
    expected = counts.sum() / cells
    return float((((counts - expected) ** 2).sum() + (cells - len(counts)) * expected**2)
                 / expected / (cells - 1))  # fmt: skip


@pytest.mark.parametrize("samples", [2, 3, 4, 5, 6])
def test_all_orders_of_few_samples_are_equally_frequent(samples):
    draws = max(2000, 10 * math.factorial(samples))
    orders = Counter(
        tuple(permute(np.arange(samples), samples, seed % 7, seed // 7)) for seed in range(draws)
    )
    cells = math.factorial(samples)
    # Six standard deviations: it fails once in 10**9, and a bias of some percent is seen.
    assert chi_square(list(orders.values()), cells) < 1 + 6 * math.sqrt(2 / (cells - 1))


@pytest.mark.parametrize("samples", [100, 1797, 60_000])
def test_pairs_of_neighbours_land_uniformly(samples):
    """Where two neighbouring positions lead: 10 x 10 cells, over many epochs."""
    positions = np.array([0, 1, samples // 2, samples // 2 + 1, samples - 2, samples - 1])
    cells: Counter = Counter()
    for epoch in range(1500):
        order = permute(positions, samples, 11, epoch) * 10 // samples
        cells.update(zip(order[::2].tolist(), order[1::2].tolist(), strict=True))
    counts = [cells[pair] for pair in itertools.product(range(10), repeat=2)]
    if samples == 100:  # two different samples share a cell of ten a little less often
        expected = np.where(np.eye(10).ravel() == 1, 10 * 9, 10 * 10) / (100 * 99) * 4500
        value = (((np.array(counts) - expected) ** 2) / expected).sum() / 99
    else:
        value = chi_square(counts, 100)
    assert value < 1 + 6 * math.sqrt(2 / 99)


def test_the_test_of_uniformity_sees_a_bias():
    assert chi_square([130, 100, 100, 70], 4) > 1 + 6 * math.sqrt(2 / 3)


def test_seeds_and_epochs_give_different_orders():
    orders = {
        tuple(permute(np.arange(20), 20, seed, epoch))
        for seed in (0, 1, 256, 2**32)
        for epoch in (0, 1, 256, 2**32)
    }
    assert len(orders) == 16


def test_the_order_never_changes():
    """A resumed job may run on a newer version: these numbers are a promise."""
    assert permute(np.arange(10), 10, 1, 0).tolist() == [1, 5, 7, 4, 6, 3, 2, 9, 0, 8]
    assert permute(np.array([0, 1, 59_999]), 60_000, 7, 3).tolist() == [8862, 50290, 4791]


@given(st.integers(1, 3 * CHUNK), st.integers(0, 3), st.data(), st.booleans())
@settings(max_examples=60)
def test_any_range_is_that_part_of_the_whole(samples, epoch, data, shuffle):
    begin = data.draw(st.integers(0, samples))
    end = data.draw(st.integers(begin, samples))
    order = Order(samples=samples, seed=5, shuffle=shuffle)
    part = order.indices(epoch, begin, end)
    whole = permute(np.arange(samples), samples, 5, epoch) if shuffle else np.arange(samples)
    assert part.dtype == np.int64
    assert np.array_equal(part, whole[begin:end])


def test_seeds_of_samples_differ_by_sample_epoch_and_stage():
    samples = np.array([0, 5, 2**40])
    seen = [
        tuple(key)
        for epoch in range(3)
        for stage in range(3)
        for key in sample_keys(samples, 1, epoch, stage).tolist()
    ]
    assert len(set(seen)) == 27
    assert sample_keys(samples, 1, 2, 0).shape == (3, 2)


def test_upstreams_permutation_is_none():
    """When this fails, `index_shuffle` is repaired and permutation.py's docstring out of date."""
    import tensorflow as tf

    shuffled = tf.random.experimental.index_shuffle([0, 65_536], seed=[1, 2], max_index=65_536)
    assert shuffled[0] == shuffled[1]
    first, second = (
        tf.random.experimental.index_shuffle(range(100), seed=[1, epoch], max_index=99).numpy()
        for epoch in (0, 256)
    )
    assert np.array_equal(first, second)
