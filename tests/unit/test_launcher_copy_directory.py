"""Copying the script's directory: what travels, what does not, and what is refused."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest

from tfrun.job.errors import UsageError
from tfrun.job.spec import Program
from tfrun.launcher.ssh.copy_directory import MAX_BYTES, pack, synced, unpack


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    for name in ("sub", ".git", "sub/__pycache__", "venv", "run", "tfrun-runs"):
        (directory / name).mkdir(parents=True)
        (directory / name / "file").write_text(name)
    (directory / "train.py").write_text("print()")
    (directory / "link").symlink_to("train.py")
    os.mkfifo(directory / "pipe")
    return directory


def copy(code: Path, to: Path, *, lost: int = 0) -> None:
    packed = io.BytesIO()
    pack(code, packed, run_dir=code / "run")
    size = len(packed.getvalue())
    packed.truncate(size - lost)
    packed.seek(0)

    async def receive(count: int) -> bytes:
        return packed.read(min(count, 100))  # streams give what they have

    asyncio.run(unpack(to, size, receive))


def test_what_is_copied(code: Path, tmp_path: Path) -> None:
    to = tmp_path / "run" / "code" / "n1"
    copy(code, to)
    found = sorted(str(path.relative_to(to)) for path in to.rglob("*"))
    assert found == ["link", "sub", "sub/file", "train.py"]
    assert (to / "link").readlink() == Path("train.py")
    assert (to / "sub" / "file").read_text() == "sub"
    assert [path.name for path in to.parent.iterdir()] == ["n1"]


def test_a_copy_that_is_cut_off_is_an_error(code: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cut off"):
        copy(code, tmp_path / "to" / "n1", lost=10)
    assert list((tmp_path / "to").iterdir()) == []


def test_a_copy_that_is_there_already_stays_as_it_is(code: Path, tmp_path: Path) -> None:
    to = tmp_path / "to" / "n1"
    copy(code, to)
    (to / "train.py").write_text("the script has changed it")
    (to / "written").touch()
    copy(code, to)
    assert (to / "train.py").read_text() == "the script has changed it"
    assert (to / "written").exists()
    assert [path.name for path in to.parent.iterdir()] == ["n1"]


def test_a_directory_that_is_too_large_is_refused(code: Path, tmp_path: Path) -> None:
    with (code / "data").open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # a hole: it takes no space
    with pytest.raises(UsageError, match=r"TFRUN-105: .* more than 1 GiB"):
        copy(code, tmp_path / "n1")


def test_what_the_copy_is_made_of(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(code.parent)
    program = Program(target="code/train.py", args=("-x",))
    assert synced(program) == (code, Program(target="train.py", args=("-x",)))
    module = Program(target="code.train", is_module=True)
    assert synced(module) == (code.parent, module)
