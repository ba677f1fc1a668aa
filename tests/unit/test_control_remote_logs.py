"""Log files of machines that do not share the launcher's disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.control import remote_logs
from tfrun.control.protocol import messages
from tfrun.control.remote_logs import PIECE_BYTES, RemoteLogs, marked, marker

TOKEN = "the-token"


def copied(there: RemoteLogs, here: Path, pieces: int = 16) -> int:
    """Takes what is new to the launcher; returns in how many messages."""
    news = list(there.news(pieces))
    for log in news:
        remote_logs.Copies(here, pytest.fail).append(log)
    return len(news)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def test_what_is_new_comes_once_whole_characters_and_all(here: Path, there: Path) -> None:
    (there / "worker-0.log").write_text("of a job before\n")
    logs = RemoteLogs(there, TOKEN)
    assert copied(logs, here) == 0
    with (there / "worker-0.log").open("ab") as file:
        file.write("naï".encode()[:-1])  # written in the midst of a character
        file.flush()
        assert copied(logs, here) == 1
        file.write("ï\r\nve\n".encode()[1:])
    (there / "worker-1.log").write_bytes(b"\xff\n")
    (there / "a.txt").write_text("no log")
    assert copied(logs, here) == 2
    assert copied(logs, here) == 0
    assert (here / "worker-0.log").read_bytes() == "naï\r\nve\n".encode()
    assert (here / "worker-1.log").read_text() == "\ufffd\n"
    assert {path.name for path in here.iterdir()} == {"worker-0.log", "worker-1.log"}


def test_much_comes_in_pieces_later(here: Path, there: Path) -> None:
    logs = RemoteLogs(there, TOKEN)
    text = "0123456789" * PIECE_BYTES
    (there / "worker-0.log").write_text(text)
    assert [copied(logs, here, 4) for _ in range(3)] == [4, 4, 2]
    assert (here / "worker-0.log").read_text() == text


def test_a_shared_disk_is_left_alone(here: Path) -> None:
    with marked(here, TOKEN):
        logs = RemoteLogs(here, TOKEN)
        (here / "worker-0.log").write_text("x\n")
        assert copied(logs, here) == 0
        assert RemoteLogs(here, "another job")._marker != marker(here, TOKEN)
    assert [path.name for path in here.iterdir()] == ["worker-0.log"]


@pytest.mark.parametrize(
    "name", ["../a.log", "/tmp/a.log", ".a.log", "a", "a.log/b.log", "", "a\n.log", "x" * 300]
)
def test_no_other_file_is_written(here: Path, name: str) -> None:
    remote_logs.Copies(here, pytest.fail).append(messages.Log(name=name, text="x"))
    assert not list(here.iterdir()) and len(list(here.parent.iterdir())) == 1
