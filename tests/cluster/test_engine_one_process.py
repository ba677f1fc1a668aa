"""The strategies that need one process: mirrored, central_storage, one_device, tpu."""

from __future__ import annotations

import functools

import pytest
from forked_workers import largest_difference
from workers import run_workers


@functools.cache
def results() -> dict:
    return run_workers("engine_one_process.py", 1, timeout=170)[0]


def result(case: str) -> dict:
    found = results()[case]
    assert "error" not in found, found["error"]
    return found


@pytest.mark.timeout(220)
def test_two_mirrored_devices_are_one() -> None:
    differences = {
        variant: largest_difference(numbers["one"], numbers["two"])
        for variant, numbers in result("mirrored_is_one_device").items()
    }
    assert len(differences) == 9
    assert max(differences.values()) < 1e-5, differences


def test_mirrored_batch_norm_is_the_same_on_both() -> None:
    assert result("mirrored_batch_norm") == {"replicas": 2}


def test_central_storage_trains_with_batch_norm() -> None:
    found = result("central_storage")
    assert found["replicas"] == 2
    assert found["finite"]
    assert largest_difference(found["one"], found["central"]) < 1e-5


def test_automatic_choice() -> None:
    assert result("automatic") == {"alone": "OneDeviceStrategy", "devices": "Mirrored"}


def test_coded_errors() -> None:
    assert result("wrong_kinds") == {"unknown": "TFRUN-501", "no ps": "TFRUN-503"}


def test_without_a_tpu_nothing_hangs() -> None:
    found = result("no_tpu")
    assert found["code"] == "TFRUN-502"
    assert found["seconds"] < 10
    assert found["threads"] == 0
