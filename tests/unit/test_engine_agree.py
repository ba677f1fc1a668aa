"""Small sums by which workers agree."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfrun.engine.agree import halves_of, mean_of


def mean(numbers: list[float]) -> float:
    sums = np.zeros((2, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for number in numbers:
            sums += halves_of(np.array([number]))
    return mean_of(sums[:, 0].tolist(), len(numbers))


@given(st.floats(-1e300, 1e300), st.integers(1, 300))
def test_the_mean_of_equal_numbers_is_that_number(number: float, count: int) -> None:
    assert mean([number] * count) == number


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_others_have_their_mean(numbers: list[float]) -> None:
    assert math.isclose(mean(numbers), math.fsum(numbers) / len(numbers), abs_tol=1e-9)


def test_what_is_no_number_stays_none() -> None:
    assert math.isnan(mean([1.0, math.nan])) and math.isnan(mean([math.inf, -math.inf]))
    assert mean([1.0, math.inf]) == math.inf
