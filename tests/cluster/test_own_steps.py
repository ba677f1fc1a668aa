"""Models without `call` that train by a step of their own; also after a death."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_workers import largest_difference
from workers import SCRIPTS, TFRUN, results_of, shown_by

CASES = [
    "gan_of_built_parts",
    "gan_of_unbuilt_parts",
    "gan_outside_the_scope",
    "autoencoder_of_built_parts",
    "autoencoder_of_unbuilt_parts",
    "parts_begin_as_the_chiefs",
    "evaluated_first",
]
WORKERS = [2, pytest.param(3, marks=pytest.mark.thorough)]


def results(workers: int) -> list[dict]:
    return results_of("own_steps.py", workers, timeout=300)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("case", CASES)
def test_one_workers_numbers(case: str, workers: int) -> None:
    mine, *others = [worker[case] for worker in results(workers)]
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    assert largest_difference(results(1)[0][case], mine) < 1e-9


@pytest.mark.timeout(300)
def test_what_the_first_step_builds_is_there_after_a_death(tmp_path: Path) -> None:
    def weights(name: str, **env: str) -> str:
        command = [TFRUN, "-n", "2", "--plain", "--run-dir", tmp_path / name]
        env["TEST_CASES"] = "gan_of_unbuilt_parts"
        shown = shown_by([*command, SCRIPTS / "own_steps.py"], env, timeout=200)
        assert ("1 restart" in shown) == ("DIE" in env), shown
        return next(line for line in shown.splitlines() if line.startswith("WEIGHTS"))

    assert weights("killed", DIE=str(tmp_path / "died")) == weights("undisturbed")
