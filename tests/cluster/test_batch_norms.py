"""Layers that keep statistics of the batch and read them again have one worker's, or it is told."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import SCRIPTS, results_of

EQUAL = ["Moving", "Added", "Moments", "Tensorflows", "ByHand", "Before", "KeptInFunction"]


@pytest.mark.timeout(500)
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("case", EQUAL)
def test_one_workers_statistics(case: str, workers: int) -> None:
    mine, *others = [worker[case] for worker in results_of("batch_norms.py", workers, timeout=200)]
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    assert largest_difference(results_of("batch_norms.py", 1, timeout=200)[0][case], mine) < 1e-9


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("cases", "told"),
    [
        ("InFunction", "the step reads the variable"),
        ("InCondition", "the step reads the variable"),
        ("Eagerly", "the step keeps in the variable"),
        (f"{' '.join(EQUAL)} KerasOwn", ""),
    ],
)
def test_what_cannot_be_one_workers_is_told_and_nothing_else(jobs, cases: str, told: str) -> None:
    done = jobs.run("-n", 2, SCRIPTS / "batch_norms.py", env={"TEST_CASES": cases})
    assert done.returncode == 0, done.stderr
    assert ("TFRUN-517" in done.stderr) == bool(told), done.stderr
    assert told in done.stderr
    assert "neither a mean nor a sum" not in done.stderr
