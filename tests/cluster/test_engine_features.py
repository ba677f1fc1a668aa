"""Keras 3 on several workers gives one worker's numbers, feature by feature."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import results_of

# What differs from one worker by nature: every worker draws the masks for its own samples, and
# its BatchNorm normalizes with its own batch. All workers must agree with each other all the same.
OWN_NUMBERS = {"batch_norm", "dropout", "random_flip"}
# bfloat16 rounds each worker's gradients to 8 bits before they are added up, float16 to 11; logs
# that a training step makes up itself are the mean over the workers' last ones.
TOLERANCE = {"mixed_bfloat16": 5e-3, "mixed_float16": 2e-4}
FEATURES = [
    "arrays",
    "arrays_short_batch",
    "arrays_fewer_samples_than_workers",
    "data_set",
    "data_set_repeated",
    "data_set_with_steps",
    "shuffled_arrays",
    "class_weight",
    "sample_weight",
    "steps_per_execution",
    "dict_inputs_and_several_outputs",
    "py_dataset",
    "evaluate_and_predict",
    "on_batch",
    "predict_on_batch",
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "accumulation",
    "accumulation_and_clipping",
    "weight_decay",
    "moving_average",
    "schedule",
    "loss_scale",
    "loss_scale_skips_together",
    "mixed_bfloat16",
    "mixed_float16",
    "embedding",
    "positions",
    "positions_of_any_length",
    "batch_norm",
    "batch_norm_synchronized",
    "dropout",
    "random_flip",
    "own_train_step",
    "gradients_in_variables",
    "regularized",
    "vector_metric",
    "run_eagerly",
    "jit_compile",
    "global_step_logs",
]
# With three workers the shares are uneven; what that cannot touch is not run again.
UNEVEN = [
    "arrays",
    "arrays_fewer_samples_than_workers",
    "data_set",
    "sample_weight",
    "steps_per_execution",
    "dict_inputs_and_several_outputs",
    "evaluate_and_predict",
    "accumulation_and_clipping",
    "embedding",
    "positions",
    "positions_of_any_length",
    "batch_norm",
    "batch_norm_synchronized",
    "own_train_step",
    "run_eagerly",
    "global_step_logs",
]
CHOSEN = {1: FEATURES, 2: FEATURES, 3: UNEVEN}


def results(workers: int) -> list[dict]:
    cases = " ".join(CHOSEN[workers])
    return results_of("engine_features.py", workers, timeout=300, TEST_CASES=cases)


def check(workers: int, feature: str) -> None:
    mine, *others = [worker[feature] for worker in results(workers)]
    alone = results(1)[0][feature]
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    if feature in OWN_NUMBERS:
        return
    if feature == "own_train_step":
        mine, alone = mine["weights"], alone["weights"]
    assert largest_difference(alone, mine) < TOLERANCE.get(feature, 1e-5)


@pytest.mark.timeout(660)
@pytest.mark.parametrize("feature", FEATURES)
def test_two_workers_are_one(feature: str) -> None:
    check(2, feature)


@pytest.mark.timeout(660)
@pytest.mark.parametrize("feature", UNEVEN)
def test_three_workers_are_one(feature: str) -> None:
    check(3, feature)


def test_every_case_of_the_script_is_named_here() -> None:
    assert set(results(1)[0]) == set(FEATURES)
