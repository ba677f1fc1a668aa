"""How many replicas each worker holds where some are slower."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.balance import LEAST_GAIN, better, typical


@pytest.mark.parametrize(
    ("counts", "seconds", "wanted"),
    [
        ([3, 3], [1.0, 2.0], (4, 2)),
        ([3, 3], [2.0, 1.0], (2, 4)),
        ([3, 3], [1.0, 1.0], None),
        ([3, 3], [1.0, 1.2], None),  # 3.6 a step would be 4 with four and two
        ([4, 2], [1.0, 2.0], None),  # it stays
        ([4, 2], [1.0, 1.0], (3, 3)),  # and goes back
        ([2, 2, 2], [1.0, 1.0, 9.0], (3, 2, 1)),  # each keeps one
        ([10, 10], [1.0, 1.15], None),  # 11.5 would be 11, which is not worth it
        ([2, 1], [1.0, math.nan], None),  # nothing was measured
        ([2, 1], [1.0, 0.0], None),
    ],
)
def test_by_hand(counts: list[int], seconds: list[float], wanted: tuple[int, ...] | None) -> None:
    assert better(counts, seconds) == wanted


def step(counts, seconds) -> float:
    return max(count * each for count, each in zip(counts, seconds, strict=True))


jobs = st.lists(st.tuples(st.integers(1, 5), st.floats(0.01, 10)), min_size=1, max_size=4)


@given(jobs)
def test_no_other_division_makes_a_quicker_step(job: list[tuple[int, float]]) -> None:
    counts, seconds = zip(*job, strict=True)
    replicas = sum(counts)
    every = itertools.product(range(1, replicas + 1), repeat=len(counts))
    quickest = min(step(each, seconds) for each in every if sum(each) == replicas)
    found = better(counts, seconds)
    if found is None:
        assert quickest > (1 - LEAST_GAIN) * step(counts, seconds) * (1 - 1e-9)
    else:
        assert sum(found) == replicas and min(found) >= 1
        assert step(found, seconds) == quickest
        assert better(found, seconds) is None  # it does not come back


def test_a_pause_counts_little_and_a_quota_in_full() -> None:
    assert typical([1.0] * 25 + [99.0] + [1.0] * 24) == 1
    assert typical([1.0, 3.0] * 25) == 2  # every second step is stopped for a while
    assert math.isnan(typical([]))
