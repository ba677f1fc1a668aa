"""Losses as people write them: two and three workers give one worker's numbers, to rounding."""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import SCRIPTS, by_case, results_of

CASES = [
    "step_mean",
    "step_sum",
    "step_two_means",
    "step_mean_of_a_mean",
    "step_mean_and_sum",
    "step_mean_and_weights",
    "step_sum_and_weights",
    "step_stacked",
    "step_root",
    "step_quotient",
    "step_masked",
    "step_chosen",
    "step_by_batch",
    "step_rows_by_batch",
    "step_keras",
    "step_keras_and_weights",
    "step_keras_sum",
    "step_keras_none",
    "step_compute_loss",
    "step_average",
    "step_stated",
    "step_in_a_function",
    "step_logarithm",
    "sizes_of_batches_of_one_size",
    "step_that_is_a_function",
    "step_with_a_penalty",
    "step_within_the_tapes",
    "eager_mean",
    "eager_sum",
    "eager_mean_and_sum",
    "eager_root",
    "eager_masked",
    "eager_keras_and_weights",
    "eager_compute_loss",
    "eager_by_static_batch",
    "gan",
    "overridden_compute_loss",
    "super_compute_loss",
    "endpoint",
    "add_loss_sum",
    "add_loss_mean",
    "add_loss_constant",
    "add_loss_root",
    "add_loss_rows",
    "add_loss_sum_eagerly",
    "regularized",
    "loss_called",
    "loss_called_super",
    "loss_number",
    "loss_number_sum",
    "loss_dice",
    "loss_rows",
    "loss_object_sum",
    "loss_object_none",
    "loss_object",
    "loss_number_eagerly",
    "sample_weight",
    "mean_with_sample_weight",
    "masked_sequences",
    "masked_loss_function",
    "several_outputs",
    "loss_scale",
    "accumulated",
]
# With three workers the shares are uneven, which can touch these; what it cannot runs on two.
UNEVEN = [
    "step_mean",
    "step_sum_and_weights",
    "step_root",
    "step_chosen",
    "step_average",
    "step_stated",
    "step_within_the_tapes",
    "eager_masked",
    "gan",
    "super_compute_loss",
    "endpoint",
    "add_loss_rows",
    "loss_called",
    "loss_number",
    "loss_dice",
    "loss_object_none",
    "mean_with_sample_weight",
    "masked_sequences",
    "several_outputs",
]
EVEN = [case for case in CASES if case not in UNEVEN]
# Replicas of one process share the layers and the metrics as objects.
IN_ONE_PROCESS = [
    "step_root",
    "step_chosen",
    "gan",
    "endpoint",
    "add_loss_root",
    "add_loss_sum",
    "masked_sequences",
    "several_outputs",
]


TOLD = {
    "regularizer": 1,
    "contrastive": 1,
    "centered": 1,
    "in a layer": 1,
    "in order": 1,
    "none": 0,
}


def results(workers: int) -> list[dict]:
    cases = " ".join({1: CASES, 2: EVEN, 3: UNEVEN}[workers])
    return results_of("engine_losses.py", workers, timeout=580, TEST_CASES=cases)


def check(workers: int, name: str) -> None:
    mine, *others = [worker[name] for worker in results(workers)]
    alone = results(1)[0][name]
    assert isinstance(alone, dict), alone
    assert [largest_difference(mine, other) for other in others] == [0.0] * (workers - 1)
    assert largest_difference(alone, mine) < 1e-8, (alone["history"], mine["history"])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", EVEN)
def test_two_workers_are_one(name: str) -> None:
    check(2, name)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", UNEVEN)
def test_three_workers_are_one(name: str) -> None:
    check(3, name)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_two_devices_are_one(name: str) -> None:
    cases = " ".join(IN_ONE_PROCESS)
    two = results_of("engine_losses.py", 1, timeout=580, TEST_DEVICES="2", TEST_CASES=cases)[0]
    assert isinstance(two[name], dict), two[name]
    assert largest_difference(results(1)[0][name], two[name]) < 1e-8


@pytest.mark.timeout(200)
def test_a_loss_that_compares_samples_is_told(jobs) -> None:
    done = jobs.run("-n", 2, SCRIPTS / "losses_of_pairs.py")
    assert done.returncode == 0, done.stderr
    said = "is neither a mean nor a sum over the samples"
    told = {case: text.count(said) for case, text in by_case(done.stderr).items()}
    assert told == {**TOLD, "end": 0}, done.stderr


def test_every_case_of_the_script_is_named_here() -> None:
    assert set(results(1)[0]) == set(CASES)
