"""Fifty steps on two and three workers are fifty steps on one."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import results_of

STEPS = 50
PLAIN = [(2, "sgd"), (2, "momentum"), (2, "adam"), (3, "adam")]


def results(workers: int) -> list[dict]:
    env = {"TEST_OPTIMIZERS": "adam"} if workers == 3 else {}
    return results_of("engine_numbers.py", workers, timeout=280, **env)


@pytest.mark.timeout(590)
@pytest.mark.parametrize(("workers", "optimizer"), PLAIN)
def test_losses_metrics_and_weights(optimizer: str, workers: int) -> None:
    one, many = results(1)[0][optimizer], results(workers)[0][optimizer]
    assert many["steps"] == STEPS
    assert largest_difference(one["weights"], many["weights"]) < 1e-5
    assert largest_difference(one["history"], many["history"]) < 1e-5
    # After each step the metrics read the data seen so far, not one worker's part of it.
    assert largest_difference(one["metrics"], many["metrics"]) < 1e-5


@pytest.mark.timeout(590)
@pytest.mark.parametrize(("workers", "optimizer"), [*PLAIN, (2, "with state"), (3, "with state")])
def test_workers_hold_the_same(optimizer: str, workers: int) -> None:
    """The script itself compares every bit of every variable after every step."""
    first, *others = [worker[optimizer] for worker in results(workers)]
    assert first["steps"] == STEPS
    assert all(other == first for other in others)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_metrics_are_those_of_the_whole_data(workers: int) -> None:
    whole, pieces = results(workers)[0]["adam"]["evaluated"]
    assert largest_difference(whole, pieces) < 1e-6
