"""What a bench has found, for later jobs on the same machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tfrun.job import bench_results
from tfrun.job.bench_results import BenchSettings, machines_of
from tfrun.job.spec import JobSpec, Program, WorkerRange

SETTINGS = BenchSettings(
    communication="ring", small_bytes=32 << 10, pack_bytes=1 << 20, date="2026-11-22"
)
HERE = machines_of([], 2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tfrun" / "bench.json"


def spec(**more) -> JobSpec:
    return JobSpec(program=Program(target="train.py"), run_dir="/tmp/r", **more)


def test_it_is_for_as_many_workers_on_the_same_machines() -> None:
    pair = machines_of([("a", 2), ("b", 2)], 4)
    assert bench_results.find(HERE) is None
    bench_results.keep(HERE, SETTINGS)
    bench_results.keep(pair, BenchSettings(communication="host", date="2026-11-23"))
    assert bench_results.find(HERE) == SETTINGS
    assert bench_results.find(pair) == BenchSettings(communication="host", date="2026-11-23")
    for other in (
        machines_of([], 3),
        machines_of([("a", 2), ("b", 2)], 3),
        machines_of([("a", 2), ("c", 2)], 4),
        machines_of([("b", 2), ("a", 2)], 4),
    ):
        assert bench_results.find(other) is None


def test_the_newest_one_counts_and_few_are_kept(cache: Path) -> None:
    for i in range(bench_results.KEPT + 5):
        bench_results.keep(machines_of([(f"n{i}", 1)], 2), SETTINGS)
    bench_results.keep(
        machines_of([("n9", 1)], 2), BenchSettings(communication="host", date="2026-11-30")
    )
    found = bench_results.find(machines_of([("n9", 1)], 2))
    assert found is not None and found.date == "2026-11-30"
    assert bench_results.find(machines_of([("n0", 1)], 2)) is None
    assert len(json.loads(cache.read_text())) == bench_results.KEPT


def test_another_version_measures_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    bench_results.keep(HERE, SETTINGS)
    monkeypatch.setattr(bench_results, "__version__", "99")
    assert bench_results.find(machines_of([], 2)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"communication": "nccl"},
        {"communication": ["host"]},
        {"small_bytes": "1"},
        {"small_bytes": -1},
        {"pack_bytes": 1 << 40},
        {"pack_bytes": True},
        {"date": "\x1b[31mtoday"},
        {"date": None},
    ],
    ids=str,
)
def test_what_makes_no_sense_counts_as_nothing(cache: Path, change: dict) -> None:
    bench_results.keep(HERE, SETTINGS)
    (one,) = json.loads(cache.read_text())
    cache.write_text(json.dumps([one, {**one, **change}]))
    assert bench_results.find(HERE) is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", "[[]]", "\ud800", "null"])
def test_a_damaged_file_counts_as_nothing_and_is_replaced(cache: Path, text: str) -> None:
    cache.parent.mkdir()
    cache.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert bench_results.find(HERE) is None
    bench_results.keep(HERE, SETTINGS)
    assert bench_results.find(HERE) == SETTINGS


def test_a_job_uses_it_where_it_states_nothing_else() -> None:
    job = SETTINGS.on(spec())
    assert (job.communication, job.preferred) == ("auto", "ring")
    assert (job.small_bytes, job.pack_bytes) == (32768, 1048576)
    said = "as measured by tfrun bench on 2026-11-22: --communication "
    assert SETTINGS.used_by(spec()) == f"{said}ring, packs of 1 MiB"
    stated = spec(communication="host")
    assert SETTINGS.used_by(stated) == f"{said}host, in one exchange up to 32 KiB"


def test_the_ring_is_not_used_for_what_only_the_host_collective_can() -> None:
    for asks, way in (
        ({"replicas": 2}, "ring"),
        ({"replicas": 4}, "host"),
        ({"replicas": 2, "in_place": "on"}, "host"),
    ):
        asking = replace(spec(), workers=WorkerRange(low=2, high=2), **asks)
        assert SETTINGS.on(asking).preferred == way
        assert f"--communication {way}" in SETTINGS.used_by(asking)
