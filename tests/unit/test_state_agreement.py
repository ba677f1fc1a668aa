"""What a machine does with a state that another one has sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.process import channel
from tfrun.state import share_snapshot


def test_it_is_left_to_the_successors(tmp_path: Path) -> None:
    path = tmp_path / "state-0-1-2.safetensors"
    share_snapshot._leave(path, b"state")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"state"


def test_without_room_nothing_is_left_behind_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(channel, "emit", lambda report: said.append(report.text))
    path = tmp_path / "state-0-1-2.safetensors"
    path.mkdir()  # what cannot be replaced by a file
    share_snapshot._leave(path, b"state")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == [".no-room"]
    assert len(said) == 1 and "TFRUN-702" in said[0]
