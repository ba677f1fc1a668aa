"""On every worker: rows of a batch smaller than the job, metrics' values, logs of batches."""

from __future__ import annotations

import numpy as np
import pytest
from workers import results_of

SEEN = ["one row", "33 rows", "total", "evaluated total", "logs of evaluate", "logs of validation"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", [*SEEN, "loop"])
@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_all_workers_see_what_one_sees(workers: int, what: str) -> None:
    (one,) = results_of("seen_by_all.py", 1)
    for other in results_of("seen_by_all.py", workers):
        # The logs of one batch are the mean of the workers' own, of unequal parts on three.
        near = 0.1 if workers == 3 and what.startswith("logs") else 1e-6
        np.testing.assert_allclose(other[what], one[what], rtol=near, atol=1e-9)
