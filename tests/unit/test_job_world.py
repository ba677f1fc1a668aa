"""Who a process is, from the variables of its environment."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.settings import VARIABLE, WorkerSettings, settings
from tfrun.job.world import (
    World,
    can_do_with_one,
    fixed_replicas,
    world,
    world_from_environment,
)


def tf_config(role: str, index: int, **cluster: int) -> dict[str, str]:
    hosts = {r: [f"h:{2000 + i}" for i in range(count)] for r, count in cluster.items()}
    return {"TF_CONFIG": json.dumps({"cluster": hosts, "task": {"type": role, "index": index}})}


def test_alone_outside_a_job() -> None:
    assert world_from_environment({}) == World()
    assert World().is_chief and not World().in_job


@pytest.mark.parametrize(
    ("environment", "rank", "size", "is_chief"),
    [
        (tf_config("worker", 0, worker=2), 0, 2, True),
        (tf_config("worker", 1, worker=2), 1, 2, False),
        (tf_config("chief", 0, chief=1, worker=2), 0, 3, True),
        (tf_config("worker", 0, chief=1, worker=2), 1, 3, False),
        (tf_config("worker", 1, chief=1, worker=2), 2, 3, False),
    ],
)
def test_by_tf_config(environment, rank: int, size: int, is_chief: bool) -> None:
    world = world_from_environment(environment)
    assert (world.rank, world.size, world.is_chief, world.in_job) == (rank, size, is_chief, True)


def test_by_tfruns_own_variables() -> None:
    environment = {
        **tf_config("worker", 1, worker=4),
        **{"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        "TFRUN_ROUND": "3",
    }
    world = world_from_environment(environment)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 4, 1, 2)
    assert (world.round, world.role, world.is_chief) == (3, "worker", False)


def test_another_launchers_rank_is_not_ours() -> None:
    """`torchrun`, Slurm wrappers and others set RANK: without TFRUN_ROUND it means nothing."""
    assert world_from_environment({"RANK": "3", "WORLD_SIZE": "8"}) == World()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda child: (
        st.lists(child, max_size=4)
        | st.dictionaries(
            st.sampled_from(["cluster", "task", "type", "index", "chief", "worker"]), child
        )
    ),
)


@given(JSON)
def test_a_malformed_tf_config_never_raises(value) -> None:
    """It is reported by the launcher; `tfrun.world()` in a script must not crash on it."""
    assert isinstance(world_from_environment({"TF_CONFIG": json.dumps(value)}), World)


@pytest.mark.parametrize(
    ("workers", "stated", "default", "replicas", "fixed", "helps"),
    [
        (2, 0, 0, 2, 0, ""),
        (3, 0, 3, 3, 0, ""),  # nothing is other than without the default
        (2, 0, 3, 3, 3, "TFRUN-107 TFRUN-518"),
        (1, 0, 3, 3, 3, "TFRUN-107 TFRUN-503 TFRUN-512 TFRUN-518"),
        (1, 4, 0, 4, 4, ""),
        (3, 3, 0, 3, 3, ""),
    ],
)
def test_how_many_replicas(
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    stated: int,
    default: int,
    replicas: int,
    fixed: int,
    helps: str,
) -> None:
    own = WorkerSettings(replicas=stated, default_replicas=default)
    for name, value in {
        **tf_config("worker", 0, worker=workers),
        **{"RANK": "0", "WORLD_SIZE": str(workers), "TFRUN_ROUND": "0"},
        **{VARIABLE: own.variables()[VARIABLE]},
    }.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    try:
        assert (world().replicas, fixed_replicas()) == (replicas, fixed)
        codes = ("TFRUN-107", "TFRUN-401", "TFRUN-503", "TFRUN-512", "TFRUN-518")
        assert [code for code in codes if can_do_with_one(code)] == helps.split()
    finally:
        settings.cache_clear()
