"""GPUs are shared out among a machine's workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.agent.gpus import share_gpus, visible_gpus


@pytest.mark.parametrize(
    ("stated", "gpus"),
    [
        ("0,1", ("0", "1")),
        (" 3 , 2 ", ("3", "2")),
        ("GPU-8932f937,GPU-1", ("GPU-8932f937", "GPU-1")),
        ("", ()),
        ("-1", ()),
        ("1,-1,2", ("1",)),
    ],
)
def test_the_stated_gpus_count(stated: str, gpus: tuple[str, ...]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": stated}) == gpus


def test_the_drivers_gpus_count_otherwise(tmp_path: Path) -> None:
    assert visible_gpus({}, tmp_path / "no-driver") == ()
    for bus in ("0000:01:00.0", "0000:02:00.0", "0000:41:00.0"):
        (tmp_path / bus).mkdir()
    assert visible_gpus({}, tmp_path) == ("0", "1", "2")


def shown(gpus: int, tasks: list[str]) -> list[str | None]:
    shares = share_gpus([str(n) for n in range(gpus)], tasks)
    return [shares[task].get("CUDA_VISIBLE_DEVICES") for task in tasks]


def test_each_worker_has_gpus_of_its_own() -> None:
    workers = [f"worker:{n}" for n in range(4)]
    assert shown(8, workers) == ["0,1", "2,3", "4,5", "6,7"]
    assert shown(4, workers) == ["0", "1", "2", "3"]
    # All workers need the same number of devices: two stay idle.
    assert shown(6, workers) == ["0", "1", "2", "3"]


def test_too_few_gpus_are_shared_with_memory_growth() -> None:
    workers = [f"worker:{n}" for n in range(4)]
    assert shown(2, workers) == ["0", "1", "0", "1"]
    shares = share_gpus(["0", "1"], workers)
    assert all(share["TF_FORCE_GPU_ALLOW_GROWTH"] == "true" for share in shares.values())


def test_only_workers_compute() -> None:
    assert shown(2, ["chief:0", "worker:0", "worker:1", "ps:0"]) == ["-1", "0", "1", "-1"]
    assert shown(2, ["chief:0"]) == ["0,1"]


def test_without_gpus_nothing_is_said() -> None:
    assert share_gpus([], ["worker:0"]) == {"worker:0": {}}


def test_who_may_come_beside_a_worker_finds_memory() -> None:
    shares = share_gpus(["0", "1"], ["worker:0", "worker:1"], others_come=True)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares.values()] == ["0", "1"]
    assert all(share["TF_FORCE_GPU_ALLOW_GROWTH"] == "true" for share in shares.values())
