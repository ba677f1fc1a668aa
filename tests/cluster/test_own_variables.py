"""A variable that each worker has for itself, and that a step makes of its part of the data."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("scripts") / "own_variables.py"
SAID = {
    "lookup": "each worker has of the data (`on_replica`), so each worker has another one",
    "rows": "WARNING TFRUN-506: the variable 'table' was made outside",
    "late": "WARNING TFRUN-506: the variable 'made_late' was made outside",
    "mistake": "WARNING TFRUN-506: the variable 'of_the_data' was made outside",
    "inside": "WARNING TFRUN-506: the variable 'of_nothing' was made without an aggregation",
}


@pytest.mark.parametrize(("workers", "times"), [(1, 0), (2, 2)])
@pytest.mark.parametrize("case", SAID)
def test_what_differs_between_workers_is_told(jobs, case: str, workers: int, times: int) -> None:
    done = jobs.run("-n", workers, SCRIPT, case)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(SAID[case]) == times, done.stderr


def test_what_is_the_same_on_all_is_let_be(jobs) -> None:
    shown = set()
    for workers in (1, 2, 3):
        done = jobs.run("-n", workers, "--strict", SCRIPT, "meant")
        assert done.returncode == 0, done.stderr
        shown |= {line for line in done.stdout.splitlines() if line.startswith("found")}
    assert len(shown) == 1, shown
