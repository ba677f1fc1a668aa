"""What TensorBoard itself reads of the files that are written for it."""

from __future__ import annotations

import math
import resource
import warnings
from pathlib import Path
from typing import Any

import pytest

from tfrun.observe import tensorboard_file
from tfrun.observe.tensorboard import Board
from tfrun.observe.tensorboard_file import EventFile

PROGRESS = {
    **{"event": "progress", "epoch": 0, "step_seconds": 0.5, "logs": {"loss": 1.5, "bad": "NaN"}},
    "split": {"input": 0.1, "compute": 0.3, "communication": None},
    "tasks": {"own_ms": [300.0, 400.0, None], "step_ms": [500, 400.0, None]},
}
TRAINING = {"kind": "training", "global_batch": 96, "workers": 3, "rate": {"rate": 0.01}}
EPOCH = {"kind": "epoch_end", "epoch": 2, "logs": {"loss": 0.5, "val_loss": 0.75}}


def read(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of protobuf's generated code
        reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        accumulator = reader.EventAccumulator(str(folder), size_guidance={reader.SCALARS: 0})
        accumulator.Reload()
    return accumulator


def values(accumulator: Any, tag: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in accumulator.Scalars(tag)]


def test_a_job_is_read_back(tmp_path: Path) -> None:
    board = Board(tmp_path / "boards", tmp_path / "my-run")
    board.event({"time": 1.0, "event": "job", "script": "train.py", "seed": 7})
    board.event({"time": 2.0, "event": "worker_report", "report": TRAINING})
    for step in (10, 20):
        board.event({**PROGRESS, "time": 3.0 + step, "step": step})
    board.event({"time": 40.0, "event": "worker_report", "report": EPOCH})
    board.event({"time": 41.0, "event": "recovered", "seconds": 1.25})
    board.event({"time": 42.0, "event": "something new", "step": "x"})
    board.event({"time": 43.0, "event": "job_ended", "exit_code": 0})
    board.close()
    (run,) = (tmp_path / "boards").iterdir()
    assert run.name == "my-run" and len(list(run.iterdir())) == 1  # one writer
    found = read(run)
    assert values(found, "step/loss") == [(10, 1.5), (20, 1.5)]
    assert math.isnan(values(found, "step/bad")[0][1])
    assert values(found, "samples per second/all") == [(10, 192.0), (20, 192.0)]
    assert values(found, "samples per second/worker 0")[0] == (10, 64.0)
    assert values(found, "samples per second/worker 1")[0] == (10, 80.0)
    assert values(found, "own seconds/worker 1")[0][1] == pytest.approx(0.4)
    assert values(found, "step seconds/compute")[0][1] == pytest.approx(0.3)
    assert values(found, "epoch/val_loss") == [(2, 0.75)]
    assert values(found, "recovery seconds") == [(20, 1.25)]
    scalars = found.Tags()["scalars"]
    assert not [tag for tag in scalars if "worker 2" in tag or tag.endswith("communication")]
    assert found.Scalars("step/loss")[0].wall_time == 13.0


def test_the_hyperparameters_are_those_that_the_plugin_reads(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    given = {"rate": 0.01, "batch": 128, "name": "größe", "flag": True}
    file.hyperparameters(5.0, "group", given)
    file.ended(6.0, succeeded=False)
    file.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metadata = pytest.importorskip("tensorboard.plugins.hparams.metadata")
        contents = read(tmp_path).PluginTagToContent("hparams")
        start = metadata.parse_session_start_info_plugin_data(
            contents["_hparams_/session_start_info"]
        )
        end = metadata.parse_session_end_info_plugin_data(contents["_hparams_/session_end_info"])
    assert start.group_name == "group" and start.start_time_secs == 5.0
    assert start.hparams["rate"].number_value == 0.01
    assert start.hparams["batch"].number_value == 128
    assert start.hparams["name"].string_value == "größe"
    assert start.hparams["flag"].bool_value is True
    assert (end.status, end.end_time_secs) == (2, 6.0)


def test_after_a_full_disk_another_file_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard_file, "ANEW_SECONDS", 0.0)
    file, before = EventFile(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    file.scalars(1.0, 1, {"loss": 1.0})
    file.flush()
    (first,) = tmp_path.iterdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (first.stat().st_size + 5, before[1]))
    try:
        file.scalars(1.0, 2, {"loss": 1.0})
        file.flush()
        assert file.error is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        for step in range(3, 6):
            file.scalars(1.0, step, {"loss": 1.0})
            file.flush()
        assert list(tmp_path.iterdir()) == [first]  # what has no room is not left behind
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.scalars(1.0, 6, {"loss": 6.0})
    file.close()
    assert file.error is None
    files = sorted(tmp_path.iterdir())
    assert files[0] == first and len(files) == 2
    assert values(read(files[0]), "loss") == [(1, 1.0)]
    assert values(read(files[1]), "loss") == [(6, 6.0)]
