"""What `--communication auto` is."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfrun.engine import communication
from tfrun.job.errors import UsageError

OURS = {"collective_key": "secret"}


def uses_host(explicit=None) -> bool:
    return communication.uses_host(2, explicit)


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ({}, False),  # a cluster that others have started
        (OURS, True),
        ({**OURS, "communication": "auto"}, True),
        ({**OURS, "communication": "ring"}, False),
        ({"communication": "host"}, True),
        ({**OURS, "preferred": "ring"}, False),
        ({"preferred": "host"}, True),
        ({**OURS, "preferred": "host", "communication": "ring"}, False),
        ({"compress": "bf16"}, True),
        # The ring was measured as faster, but it does not compress.
        ({**OURS, "preferred": "ring", "compress": "bf16"}, True),
    ],
)
def test_the_way_of_auto(work_under, stated: dict[str, str], wanted: bool) -> None:
    work_under(**stated)
    assert uses_host() is wanted


def test_what_a_script_names_is_taken(work_under) -> None:
    work_under(**OURS)
    named = communication.CommunicationOptions(implementation=communication.Implementation.RING)
    assert not uses_host(named)


GPU = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    """Has TensorFlow tell of GPUs that are not there, on one machine of two workers."""
    monkeypatch.setenv("TFRUN_ROUND", "0")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")

    def have(count: int, parts: int = 1) -> None:
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: [GPU] * count)
        # None where the script has not divided it.
        divided = [tf.config.LogicalDeviceConfiguration()] * parts if parts > 1 else None
        monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda _: divided)

    return have


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ({}, False),  # NCCL
        ({"communication": "host"}, True),
        # What only the host collective can do asks for it.
        ({"in_place": "on"}, True),
        ({"replicas": 2}, True),
        ({"compress": "bf16"}, True),
        ({"overlap": "on"}, True),
        ({"overlap": "on", "communication": "ring"}, False),
        ({"shares_gpu": True}, True),
        ({"shares_gpu": True, "communication": "nccl"}, False),
        ({"preferred": "host"}, False),  # measured between workers without GPUs
    ],
)
def test_the_way_of_workers_with_a_gpu_each(work_under, gpus, stated, wanted: bool) -> None:
    gpus(1)
    work_under(**{**OURS, **stated})
    assert uses_host() is wanted


def test_that_another_machines_workers_share_none_is_not_known(
    work_under, gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)
    monkeypatch.setenv("WORLD_SIZE", "3")
    work_under(**OURS, shares_gpu=True)
    assert not uses_host()


@pytest.mark.parametrize(("count", "parts"), [(2, 1), (1, 2)])
def test_workers_of_several_devices_do_not_use_it(work_under, gpus, count: int, parts: int) -> None:
    gpus(count, parts)
    work_under(**OURS, shares_gpu=True)
    assert not uses_host()
    work_under(**OURS, communication="host")
    with pytest.raises(UsageError, match="this one has 2 GPUs"):
        uses_host()
