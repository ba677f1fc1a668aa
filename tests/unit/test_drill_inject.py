"""When repeated faults come."""

from __future__ import annotations

import random

import pytest

from tfrun.tools.drill.inject import _gaps


@pytest.mark.parametrize("times", [1, 2, 30])
def test_repeated_faults_fit_into_the_training(times: int) -> None:
    for seed in range(100):
        gaps = _gaps(times, 40.0, random.Random(seed))
        assert len(gaps) == times
        assert all(gap >= 0 for gap in gaps) and sum(gaps) <= 40.0
