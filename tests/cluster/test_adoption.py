"""What a script makes outside the scope: adopted, with one worker's numbers, or refused."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import results_of

ADOPTED = [
    "metrics_above_the_scope",
    "model_outside_compiled_inside",
    "model_inside_compiled_outside",
    "all_outside_fit_inside",
    "only_the_optimizer_inside",
    "loss_scaling_outside",
    "loaded_and_cloned",
    "used_before_it_is_adopted",
    "a_base_and_preprocessing_outside",
    "a_loss_with_state",
    "metrics_of_a_train_step",
    "on_batches",
]
CLOSE = {"on_batches": 1e-6}  # logs of single batches are float32
WORKERS = [2, pytest.param(3, marks=pytest.mark.thorough)]


def results(workers: int) -> list[dict]:
    return results_of("adoption.py", workers, timeout=300)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("case", ADOPTED)
def test_adopted_with_the_numbers_of_one_worker(case: str, workers: int) -> None:
    mine, *others = [worker[case] for worker in results(workers)]
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    assert largest_difference(results(1)[0][case], mine) < CLOSE.get(case, 1e-9)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("workers", [1, *WORKERS])
def test_what_a_loop_of_the_script_uses_is_refused_by_name(workers: int) -> None:
    for worker in results(workers):
        loops = worker["custom_loops"]
        assert loops[""][0] == ""
        for part, name in {"model": "kernel", "optimizer": "optimizer 'sgd"}.items():
            code, text = loops[part][:2]
            assert code == "TFRUN-506" and name in text and "(in adoption.py:" in text
        # One worker's metric is all there is.
        code, text = loops["metric"][:2]
        assert code == ("TFRUN-506" if workers > 1 else "") and ("mae/total" in text) == (
            workers > 1
        )
        code, text = worker["a_metric_that_nobody_can_find"]
        assert code == ("TFRUN-506" if workers > 1 else "")
        assert ("hidden/total" in text) == (workers > 1)
        code, text = worker["two_strategies"]
        assert code == "TFRUN-506" and "another strategy" in text


@pytest.mark.timeout(700)
def test_several_devices_of_one_process() -> None:
    cases = ["metrics_above_the_scope", "a_base_and_preprocessing_outside"]
    env = {"TEST_STRATEGY": "two", "TEST_CASES": " ".join(cases)}
    devices = results_of("adoption.py", 1, timeout=300, **env)[0]
    for case in cases:
        assert largest_difference(results(1)[0][case], devices[case]) < 1e-9, case
