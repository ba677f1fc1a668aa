"""Steps that change gradients, or keep what they compute, as one worker does both."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import SCRIPTS, results_of

WORKERS = [2, pytest.param(3, marks=pytest.mark.thorough)]
CHANGED = ["Clip", "ClipEach", "ClipValue", "AGC", "SAM", "Manual", "Norm", "Center2", "Skip"]
CHANGED += ["Noise", "Masked", "Moved", "Factor"]
KEPT = ["Queue", "Codebook", "Counter", "Centers", "Accumulate", "Renamed"]


def results(workers: int) -> list[dict]:
    return results_of("whole_values.py", workers, timeout=300)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("case", CHANGED + KEPT)
def test_one_workers_numbers(case: str, workers: int) -> None:
    mine, *others = [worker[case] for worker in results(workers)]
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    assert largest_difference(results(1)[0][case], mine) < 1e-9


@pytest.mark.timeout(700)
@pytest.mark.parametrize("workers", WORKERS)
def test_one_workers_numbers_where_the_step_runs_eagerly(workers: int) -> None:
    env = {"TEST_EAGER": "1", "TEST_CASES": " ".join(CHANGED)}
    mine, *others = results_of("whole_values.py", workers, timeout=300, **env)
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    alone = {case: results(1)[0][case] for case in CHANGED}
    assert largest_difference(alone, mine) < 1e-9


@pytest.mark.timeout(320)
def test_a_step_draws_once_for_the_whole_batch() -> None:
    one, *others = results_of("whole_values.py", 3, timeout=300, TEST_CASES="Drawn")
    assert others == [one, one]
    # Eight steps of 19 numbers, each of a standard normal: not the mean over three workers' draws.
    assert one["Drawn"][2]["seen"] > 90


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("case", "eager", "times"),
    [
        *[("Unknown", False, 2), ("Largest", False, 2), ("Clip", False, 0), ("Nested", False, 2)],
        *[("Nested", True, 2), ("Scaled", True, 2), ("Guard", True, 0)],
    ],
)
def test_what_nobody_can_put_together_is_told(jobs, case: str, eager: bool, times: int) -> None:
    env = {"TEST_CASES": case, **({"TEST_EAGER": "1"} if eager else {})}
    done = jobs.run("-n", 2, SCRIPTS / "whole_values.py", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING TFRUN-517: ") == times, done.stderr


@pytest.mark.timeout(200)
def test_what_workers_of_an_eager_step_take_for_different_things_is_told(jobs) -> None:
    # Two samples a worker, and two rows in the variable: a third worker has none of the last batch.
    env = {"TEST_CASES": "Centers", "TEST_EAGER": "1"}
    done = jobs.run("-n", 3, SCRIPTS / "whole_values.py", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING TFRUN-517: ") == 2, done.stderr
