"""Snapshots: whole or not there, and the latest one wins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tfrun.process import channel
from tfrun.state import snapshot
from tfrun.state.snapshot import Place, Snapshot

ARRAYS = {
    "model/0/kernel": np.arange(12, dtype=np.float32).reshape(3, 4),
    "optimizer/0/iteration": np.array(7),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3), np.int64),
}


def at(call: int, epoch: int, step: int, **values) -> Snapshot:
    place = Place(call=call, epoch=epoch, step=step)
    return Snapshot(place=place, values=values, arrays=ARRAYS)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    kept = at(1, 2, 3, began=True, logs={"loss": 0.1}, nothing=None)
    assert snapshot.write(tmp_path, kept)
    read = snapshot.read_file(snapshot.path_of(tmp_path, kept.place))
    assert read is not None
    assert (read.place, read.values) == (kept.place, kept.values)
    assert read.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert read.arrays[name].dtype == array.dtype
        assert read.arrays[name].shape == array.shape
        assert np.array_equal(read.arrays[name], array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, -2.25]], ml_dtypes.bfloat16),
        np.array(1.5, ml_dtypes.float8_e4m3fn),
        np.array(["best", "of five"]),
        np.array([b"x"]),
        np.array(["2020-01-01"], "M8[D]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_safetensors_does_not_know_keeps_its_bits(tmp_path: Path, array) -> None:
    path = tmp_path / "one.safetensors"
    snapshot.write_file(path, Snapshot(place=Place(), arrays={"a": array}))
    read = snapshot.read_file(path)
    assert read is not None
    assert read.arrays["a"].dtype == array.dtype
    assert read.arrays["a"].tobytes() == array.tobytes()


def test_the_latest_place_counts_and_few_are_kept(tmp_path: Path) -> None:
    assert snapshot.latest(tmp_path) is None
    for place in [(0, 0, 9), (0, 1, 0), (0, 0, 10), (1, 0, 0)]:
        assert snapshot.write(tmp_path, at(*place))
    assert snapshot.latest(tmp_path) == Place(call=1)
    assert len(list(tmp_path.glob("state-*"))) == snapshot.KEPT


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_one_does_not_count(tmp_path: Path, damage: str) -> None:
    snapshot.write(tmp_path, at(0, 0, 1))
    snapshot.write(tmp_path, at(0, 0, 2))
    path = snapshot.path_of(tmp_path, Place(step=2))
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-10] ^= 4
    path.write_bytes({"cut": data[:-3], "flip": data, "empty": b""}[damage])
    assert snapshot.latest(tmp_path) == Place(step=1)


def test_what_the_search_for_the_latest_has_read_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    real = snapshot.safe_open
    monkeypatch.setattr(
        snapshot, "safe_open", lambda path, **more: opened.append(path) or real(path, **more)
    )
    snapshot.write(tmp_path, at(0, 0, 1, began=True))
    path = snapshot.path_of(tmp_path, Place(step=1))
    assert snapshot.latest(tmp_path) == snapshot.latest(tmp_path) == Place(step=1)
    first = snapshot.read_file(path)
    assert first and first.values["began"] is True
    assert opened == [path]
    assert snapshot.read_file(path) is not first  # whoever has read it may change it
    snapshot.latest(tmp_path)
    snapshot.write_file(path, at(0, 0, 1, began=False))
    second = snapshot.read_file(path)
    assert second and second.values["began"] is False
    snapshot.latest(tmp_path)
    snapshot.forget()
    opened.clear()
    assert snapshot.read_file(path) and opened == [path]


def test_what_was_sent_is_read_like_the_file(tmp_path: Path) -> None:
    snapshot.write(tmp_path, at(1, 2, 3, began=True))
    data = snapshot.path_of(tmp_path, Place(call=1, epoch=2, step=3)).read_bytes()
    read = snapshot.parse(data)
    assert read is not None and read.place == Place(call=1, epoch=2, step=3)
    assert read.values == {"began": True}
    assert all(np.array_equal(read.arrays[name], array) for name, array in ARRAYS.items())
    flipped = bytearray(data)
    flipped[-10] ^= 4
    for damaged in (flipped, data[:-3], b"", data[:4]):
        assert snapshot.parse(bytes(damaged)) is None


def test_no_room_is_no_error_and_is_said_once_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        channel, "emit", lambda report: said.append(f"{report.kind}: {report.text}")
    )
    folder = tmp_path / "not there"
    for step in range(3):
        assert not snapshot.write(folder, at(0, 0, step))
    (line,) = said
    assert line.startswith("notice: TFRUN-702: no snapshot is kept") and str(folder) in line
    folder.mkdir()
    for step in range(3):
        assert snapshot.write(folder, at(0, 0, step))
    assert said[1:] == ["notice: Snapshots are kept in the machine's memory again."]


WRITER = """
import sys
from pathlib import Path
import numpy as np
from tfrun.state import snapshot
from tfrun.state.snapshot import Place, Snapshot
print("ready", flush=True)
for step in range(10**6):
    arrays = {"a": np.full(300_000, step, np.float64)}
    snapshot.write(Path(sys.argv[1]), Snapshot(place=Place(step=step), arrays=arrays))
"""


def test_a_writer_that_is_killed_leaves_a_whole_one(tmp_path: Path) -> None:
    for _ in range(5):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            while snapshot.latest(tmp_path) is None:
                assert writer.poll() is None
            os.kill(writer.pid, signal.SIGKILL)
        place = snapshot.latest(tmp_path)
        assert place is not None
        read = snapshot.read_file(snapshot.path_of(tmp_path, place))
        assert read is not None and (read.arrays["a"] == place.step).all()
        # The dead writer holds no lock.
        assert snapshot.write(tmp_path, at(1, 0, 0))
        for path in tmp_path.glob("state-*"):
            path.unlink()
