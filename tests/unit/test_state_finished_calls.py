"""Trainings that are done: what stays in memory of them, and what the disk is asked for."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tfrun.state import finished_calls, snapshot
from tfrun.state.snapshot import Place, Snapshot


class Model:
    pass


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work_under) -> Path:
    calls = tmp_path / "checkpoints" / snapshot.CALLS
    calls.mkdir(parents=True)
    work_under(checkpoint_dir=str(calls.parent))
    monkeypatch.setattr(finished_calls, "BUDGET", 10_000)
    return calls


def done(folder: Path, call: int, *models: Model) -> None:
    half = np.ones(4, ml_dtypes.bfloat16)
    arrays = {"model/0/w": np.full(1000, call, np.float32), "model/0/half": half}
    arrays["history#0"] = np.arange(3)
    left = Snapshot(place=Place(call=call), values={"step": call}, arrays=arrays)
    finished_calls.write(folder, call, left, models=models)


def arrays_of(folder: Path, call: int) -> set[str] | None:
    found = snapshot.read_file(snapshot.path_of_call(folder, call))
    return found and set(found.arrays)


def test_what_a_later_call_holds_too_is_dropped_first(tmp_path: Path, disk: Path) -> None:
    first, second = Model(), Model()
    for call, models in enumerate([[first], [second], [first], [first, second]]):
        done(tmp_path, call, *models)
    assert [arrays_of(tmp_path, call) for call in range(4)] == [
        {"history#0"},
        {"history#0"},
        {"model/0/w", "model/0/half", "history#0"},
        {"model/0/w", "model/0/half", "history#0"},
    ]


def test_a_model_that_nothing_else_holds_leaves_the_memory_for_the_disk_alone(
    tmp_path: Path, disk: Path
) -> None:
    models = [Model() for _ in range(4)]
    for call, model in enumerate(models):
        done(tmp_path, call, model)
    assert all(arrays_of(tmp_path, call) for call in range(4))  # nowhere else: it stays
    (disk / "call-1.safetensors").write_bytes(b"")
    done(tmp_path, 4, models[3])
    there = [arrays_of(tmp_path, call) for call in range(5)]
    assert there[1] is None and there[0] is not None and there[2] is not None
    assert there[3] == {"history#0"}  # the fifth call has that model
    assert snapshot.last_call(tmp_path) == 4
