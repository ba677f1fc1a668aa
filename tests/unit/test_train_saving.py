"""Files are written beside their target and moved onto it whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.train import saving


def files(folder):
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())


def test_the_target_changes_at_the_end_only(tmp_path):
    target = tmp_path / "model.keras"
    target.write_text("old")
    with saving._beside(target) as temporary:
        assert temporary.name == "model.keras"  # Keras looks at the ending
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert files(tmp_path) == ["model.keras"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    target = tmp_path / "model.keras"
    target.write_text("old")
    with pytest.raises(OSError, match="disk full"), saving._beside(target) as temporary:
        temporary.write_text("ha")
        raise OSError("disk full")
    assert target.read_text() == "old"
    assert files(tmp_path) == ["model.keras"]


def test_several_files_and_folders_move_too(tmp_path):
    with saving._beside(tmp_path / "w.weights.json") as temporary:
        temporary.write_text("index")
        temporary.with_name("w_00000.weights.h5").write_text("shard")
    with saving._beside(tmp_path / "exported") as temporary:
        (temporary / "variables").mkdir(parents=True)
        (temporary / "variables" / "data").write_text("v")
    assert files(tmp_path) == ["exported/variables/data", "w.weights.json", "w_00000.weights.h5"]


def test_what_cannot_be_moved(tmp_path):
    (tmp_path / "folder").mkdir()
    assert saving._can_be_moved(tmp_path / "new.keras")
    assert saving._can_be_moved(str(tmp_path / "new.keras"))
    assert not saving._can_be_moved(tmp_path / "folder")  # it may hold files of others
    assert not saving._can_be_moved(tmp_path / "missing" / "new.keras")  # Keras's own error
    assert not saving._can_be_moved("gs://bucket/new.keras")
    with Path(tmp_path / "open").open("wb") as file:
        assert not saving._can_be_moved(file)


def test_messages_name_the_real_path(tmp_path, capsys):
    target = tmp_path / "exported"
    with saving._beside(target) as temporary, saving._naming(target, instead_of=temporary):
        temporary.mkdir()
        print(f"Saved artifact at '{temporary}'.")
    assert capsys.readouterr().out == f"Saved artifact at '{target}'.\n"
