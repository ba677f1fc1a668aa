"""Each repaired bug of TensorFlow and Keras is still there: when a test fails, a repair can go."""

from __future__ import annotations

import functools
import platform

import pytest
from forked_workers import run_workers


@functools.cache
def plain() -> dict:
    return run_workers("engine_upstream.py", 1, repaired=False)[0]


@functools.cache
def workers(*, repaired: bool) -> dict:
    return run_workers("engine_upstream_workers.py", 2, repaired=repaired)[0]


@pytest.mark.parametrize(
    "bug",
    [
        "clips local gradients",  # patches.keras_optimizer.reduce_first
        "weighs short batches alike",  # step_losses.of_step
        "averages nothing in layers",  # patches.keras_variable.remember_assignments
        "losses of outputs count batches",  # patches.keras_losses.count_losses_by_samples
        "one device takes the detour",  # patches.tf_iterators.read_directly
    ],
)
def test_keras_still(bug: str) -> None:
    assert plain()[bug]


def test_keras_still_merges_in_a_condition() -> None:
    """synchronous.SynchronousExtended._use_merge_call"""
    assert "merge_call" in plain()["accumulation"]


def test_central_storage_still_refuses() -> None:
    """keras_state.assign_unaggregated"""
    assert "You must specify an aggregation method" in plain()["central storage"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is glibc's")
def test_tensorflow_still_patches_the_allocator() -> None:
    """multi_worker._undo_generator_patch"""
    if workers(repaired=False)["allocator"] is None:
        pytest.skip("needs glibc 2.33")
    assert workers(repaired=False)["allocator"] == [True, True]
    assert workers(repaired=True)["allocator"] == [False, False]


def test_iterators_are_still_tuned() -> None:
    """patches.tf_iterators.end_at_once"""
    assert plain()["iterators are tuned"]


def test_fit_still_fails_on_several_workers() -> None:
    """patches.keras_trainer.build_from_local_batch and reduce_logs, keras-team/keras#20585"""
    assert "PerReplica" in workers(repaired=False)["fit"]
    assert workers(repaired=True)["fit"] == ""


def test_captures_still_stop_at_a_condition() -> None:
    """patches.tf_strategies.capture_outside_conditions"""
    name = "function in a condition"
    assert "You must feed a value for placeholder" in workers(repaired=False)[name]
    assert workers(repaired=True)[name] == ""


def test_options_are_still_forgotten() -> None:
    """multi_worker.MultiWorkerExtended._replica_ctx_all_reduce"""
    assert workers(repaired=False)["packs"] == 1
    assert workers(repaired=True)["packs"] == 2


def test_arguments_still_have_no_destination() -> None:
    """multi_worker.MultiWorkerExtended._use_merge_call"""
    assert "destinations can not be empty" in workers(repaired=False)["argument"]
    assert workers(repaired=True)["argument"] == ""
