"""What is said of GPUs that a worker does not use, or not as a person may think."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfrun.train import devices


@pytest.fixture(autouse=True)
def said_anew():
    for told in (devices.unseen, devices.unrepeatable):
        told.cache_clear()


@pytest.mark.parametrize(("named", "is_told"), [("0", True), ("-1", False), ("", False)])
def test_gpus_that_tensorflow_does_not_find(
    monkeypatch: pytest.MonkeyPatch, named: str, is_told: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    told = devices.unseen()
    assert told.startswith("trains on the CPU: it was given GPU 0") is is_told
    assert bool(told) is is_told


@pytest.mark.parametrize(
    ("stated", "is_told"),
    [({}, False), ({"replicas": 2}, True), ({"replicas": 2, "deterministic": True}, False)],
)
def test_replicas_on_gpus_need_deterministic(
    work_under, monkeypatch: pytest.MonkeyPatch, stated, is_told: bool
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["a GPU"])
    work_under(**stated)
    assert bool(devices.unrepeatable()) is is_told
