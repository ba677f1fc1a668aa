"""A training step outside `strategy.run`: one replica does it, many are told what to write."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import results_of


def results(workers: int) -> list[dict]:
    return results_of("outside_run.py", workers, timeout=150)


@pytest.mark.timeout(400)
def test_one_replica_does_it() -> None:
    (found,) = results(1)
    for name in ("eager", "traced"):  # the same step and optimizer
        for place in ("inside", "outside"):
            assert largest_difference(found[f"{name} {place}"], found["already summed"]) < 1e-6
    for name in ("built", "without slots"):
        assert largest_difference(found[f"{name} inside"], found[f"{name} outside"]) < 1e-6


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_many_replicas_are_told_what_to_write(workers: int) -> None:
    (one,) = results(1)
    for worker in results(workers):
        assert largest_difference(worker["already summed"], one["already summed"]) < 1e-6
        for name, outcome in worker.items():
            if name not in ("already summed", "nested"):
                code, text = outcome
                assert code == "TFRUN-512" and "strategy.run(step, args=(batch,))" in text, name
                assert "(in outside_run.py:" in text, name


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_in_a_run_is_named(workers: int) -> None:
    for worker in results(workers):
        code, text = worker["nested"]
        assert code == "TFRUN-512" and "Call the inner function itself" in text
