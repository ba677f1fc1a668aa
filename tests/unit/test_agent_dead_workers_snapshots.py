"""What a machine's memory holds comes to the disk without the script."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrun.agent.dead_workers_snapshots import MODULE
from tfrun.checkpoint.atomic_store import Store
from tfrun.process.python import python_command
from tfrun.state import snapshot
from tfrun.state.snapshot import Place, Snapshot

PLACE = Place(call=1, epoch=2, step=3)
ARRAYS = {"model/kernel": np.arange(6, dtype="float32").reshape(2, 3), "seed": np.uint32(7)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A machine's memory: a training that is done, and one in the middle."""
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "call-0.safetensors").write_bytes(b"the first call")
    for step in (2, 3):
        place = Place(call=1, epoch=2, step=step)
        kept = Snapshot(place=place, values={"iterations": 40 + step}, arrays=dict(ARRAYS))
        snapshot.write_file(snapshot.path_of(folder, place), kept)
    return folder


def save(folder: Path, directory: Path) -> dict[str, Any]:
    command = python_command(MODULE, str(folder), str(directory), "5")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_the_newest_state_and_all_that_is_done(folder: Path, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    assert save(folder, directory) == {"step": 43, "problem": ""}
    found = Store(directory, read_only=True).newest()
    assert found is not None and found.step == 43
    assert found.meta == {"place": [1, 2, 3], "values": {"iterations": 43}}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert (directory / "calls" / "call-0.safetensors").read_bytes() == b"the first call"


def test_what_is_there_is_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    """It may have been written by the script, with the part for plain TensorFlow."""
    directory = tmp_path / "checkpoints"
    save(folder, directory)
    (manifest,) = directory.glob("ckpt-43/manifest.json")
    before = manifest.stat().st_mtime_ns
    assert save(folder, directory)["step"] == 43
    assert manifest.stat().st_mtime_ns == before


def test_a_training_that_is_done_has_no_state_in_the_middle(folder: Path, tmp_path: Path) -> None:
    (folder / "call-1.safetensors").write_bytes(b"the second call")
    assert save(folder, tmp_path / "checkpoints") == {"step": -1, "problem": ""}
    assert (tmp_path / "checkpoints" / "calls" / "call-1.safetensors").exists()
    assert Store(tmp_path / "checkpoints", read_only=True).newest() is None


def test_a_damaged_snapshot_is_passed_over(folder: Path, tmp_path: Path) -> None:
    snapshot.path_of(folder, PLACE).write_bytes(b"half of it")
    assert save(folder, tmp_path / "checkpoints")["step"] == 42


def test_what_cannot_be_written_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    answer = save(folder, tmp_path / "checkpoints")
    assert answer["step"] == -1 and "checkpoints" in answer["problem"]
