"""What another user has put where a job is about to write: links to our files, and pipes."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from tfrun.agent.output_streams import WorkerLog
from tfrun.checkpoint import manifest
from tfrun.checkpoint.manifest import Damaged
from tfrun.cli.main import main
from tfrun.control import remote_logs
from tfrun.control.protocol import messages
from tfrun.data.ledger import reader
from tfrun.job import files, lock, run_dir
from tfrun.job.errors import TfrunError, UsageError
from tfrun.observe.events import EventLog, end_of_lines, new_lines

PLACES = ("events.jsonl", ".lock", "logs/worker-0.log", "logs/local.agent.log")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of ours, which nothing may write to."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    return victim


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    return run


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "directory"])
def test_a_job_does_not_begin_where_something_else_stands(
    run: Path, victim: Path, place: str, kind: str
) -> None:
    if kind == "pipe":
        os.mkfifo(run / place)
    elif kind == "directory":
        (run / place).mkdir()
    else:
        (run / place).symlink_to(victim if kind == "link" else victim.with_name("none"))
    with pytest.raises(UsageError, match=f"TFRUN-104: .*{place} is a link, or"):
        run_dir.create(str(run), "x", 0.0)
    assert victim.read_text() == "precious" and not victim.with_name("none").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_nor_where_another_user_has_linked_the_logs_to(run: Path, tmp_path: Path) -> None:
    (run / "logs").rmdir()
    (run / "logs").symlink_to(tmp_path)
    run_dir.create(str(run), "x", 0.0)  # our own: a larger disk
    os.lchown(run / "logs", 12345, 12345)
    with pytest.raises(UsageError, match=r"TFRUN-104: .*another user's symbolic link"):
        run_dir.create(str(run), "x", 0.0)


def test_names_that_can_be_guessed_are_made_anew(
    run: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / f".writable-{os.getpid()}").symlink_to(victim)
    run_dir.create(str(run), "x", 0.0)
    job = {"args": ["--password", "x"]}
    run_dir.write_job(run, job)
    assert run_dir.last_job(run) == job
    assert stat.S_IMODE((run / "job.json").stat().st_mode) == 0o600
    monkeypatch.setattr(os, "urandom", bytes)  # somebody has guessed it
    (run / f".job.json.{bytes(4).hex()}").symlink_to(victim)
    with pytest.raises(UsageError, match="TFRUN-104"):
        run_dir.write_job(run, {})
    assert victim.read_text() == "precious" and run_dir.last_job(run) == job


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    for text, fails in (("first", False), ("second", True), ("third", False)):
        with contextlib.suppress(KeyboardInterrupt), files.whole(target) as temporary:
            temporary.write_text(text)
            if fails:
                raise KeyboardInterrupt
        assert target.read_text() == ("first" if fails else text)
    assert list(tmp_path.iterdir()) == [target]  # and nothing else is left


def test_a_link_that_comes_later_is_not_followed(run: Path, victim: Path) -> None:
    """Each of those who write, one after the other."""
    link = run / "logs/worker-0.log"
    link.symlink_to(victim)
    said: list[str] = []
    log = WorkerLog(link, said.append)
    log.write(b"x")
    log.close()
    assert said == [f"{link} is not written: it is a symbolic link"]
    remote_logs.Copies(run / "logs", said.append).append(messages.Log(name=link.name, text="x"))
    for opens in (EventLog, files.append_to):
        with pytest.raises(OSError, match="it is a symbolic link"):
            opens(link)
    (run / "finished").symlink_to(victim.with_name("none"))
    run_dir.mark_finished(str(run))
    (run / ".lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"), lock.held(run):
        pass
    assert victim.read_text() == "precious" and not victim.with_name("none").exists()


def test_a_pipe_is_not_waited_for(run: Path) -> None:
    pipe = run / "logs/worker-0.log"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="it is not a regular file"):
        files.append_to(pipe)
    reads = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="it is not a regular file"):
        files.append_to(pipe)
    os.close(reads)


def test_what_is_appended_is_there_at_once(run: Path) -> None:
    for text in (b"one", b"two"):
        with files.append_to(run / "x") as file:
            file.write(text)
            assert (run / "x").read_bytes().endswith(text)
    assert (run / "x").read_bytes() == b"onetwo"
    assert stat.S_IMODE((run / "x").stat().st_mode) & 0o133 == 0


def test_no_pipe_in_the_place_of_a_file_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "job.json").write_text("{}")
    places = ("events.jsonl", "logs/worker-0.log", "ledger/0001-00000-00000.jsonl", "manifest.json")
    for name in places:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
        with pytest.raises(OSError, match="it is not a regular file"):
            files.read(tmp_path / name)
    assert new_lines(tmp_path / "events.jsonl").lines == []
    assert end_of_lines(tmp_path / "events.jsonl") == 0
    with pytest.raises(TfrunError, match=r"TFRUN-611.*not a regular file"):
        reader.read(tmp_path)
    with pytest.raises(Damaged):
        manifest.read(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["logs", str(tmp_path)])
    assert ended.value.code == 1
    assert "logs/worker-0.log is not a file" in capsys.readouterr().err
