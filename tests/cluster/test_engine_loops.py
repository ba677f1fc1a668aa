"""Custom training loops, checkpoints, the sync check and the choice of communication."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import results_of

SAME_AS_ONE = [
    "keras_custom_loop",
    "loop_in_the_function",
    "loop_in_the_graph",
    "eager_steps",
    "optimizer_in_a_condition",
    "apply_across_replicas",
    "datasets_from_function",
    "reduce_and_gather",
    "checkpoint",
]
# BatchNorm normalizes each worker's own batch: equal between workers, not to one worker.
IN_SYNC = [
    "step_is_a_function_of_its_own",
    "a_dead_model_and_another_garbage_collector",
    "forward_in_a_function_of_its_own",
    "two_optimizers",
    "layer_state_without_an_optimizer",
]


def results(workers: int) -> list[dict]:
    return results_of("engine_loops.py", workers, timeout=150)


# Each time, three workers run these loops under TensorFlow's ring (test_ring.py).
WORKERS = [2, pytest.param(3, marks=pytest.mark.thorough)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("case", [*SAME_AS_ONE, *IN_SYNC])
def test_workers_agree(case: str, workers: int) -> None:
    mine, *others = [worker[case] for worker in results(workers)]
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    if case in SAME_AS_ONE:
        assert largest_difference(results(1)[0][case], mine) < 1e-5


def test_plain_answers() -> None:
    for worker in results(2):
        assert worker["reduce_and_gather"]["gathered"] and worker["reduce_and_gather"]["sum"]
        assert worker["checkpoint"] == {"restored": True}


@pytest.mark.parametrize("workers", WORKERS)
def test_sync_check_names_the_variable_and_the_replica(workers: int) -> None:
    for worker in results(workers):
        text = worker["differing_variable_is_named"]["text"]
        assert "TFRUN-504" in text
        assert "second/bias" in text
        assert f"replica {workers - 1} " in text


def test_nccl_falls_back_with_one_warning() -> None:
    chief, other = [worker["nccl_falls_back"] for worker in results(2)]
    assert chief["implementation"] == other["implementation"] == ["RING", "RING"]
    assert chief["bytes_per_pack"] == 4 << 20
    assert len(chief["warnings"]) == 1
    assert "NCCL does not work on 2 of 2 workers" in chief["warnings"][0]
    assert other["warnings"] == []
