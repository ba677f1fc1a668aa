"""The files of a script whose chief dies, while the others go on in their processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tfrun.job.world import World
from tfrun.process.files import versions
from tfrun.process.files.folders import Folders
from tfrun.process.files.journal import Journal
from tfrun.process.files.opening import Opening

# Those whom nobody closes any more are what is tested.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
LEADS = World(rank=0, size=2, local_rank=0, local_size=2, is_chief=True)
FOLLOWS = World(rank=1, size=2, local_rank=1, local_size=2, is_chief=False)


@dataclass
class Worker:
    open: Callable[..., Any]
    opening: Opening
    replace: Callable[..., Any]


def worker(folder: Path, task: str, *, is_chief: bool = False) -> Worker:
    journal = Journal(folder / "j", task, is_chief=is_chief)
    opening, folders = Opening(journal, task, 3), Folders(journal, task)
    return Worker(opening.replacement(), opening, folders.around("replace", os.replace))


class Job:
    """Three workers, in one process; the first one, the chief, seems to be another."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.path = folder / "state", folder / "out" / "log"
        self.state.mkdir()
        self.path.parent.mkdir()
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        self._pid, self._patch = dead.pid, monkeypatch
        self.chief = worker(self.state, "worker:0", is_chief=True)
        self.next, self.last = (worker(self.state, f"worker:{n}") for n in (1, 2))
        self.left: list[Any] = []

    def chief_writes(self, mode: str, text: str) -> None:
        with self._patch.context() as patch:
            patch.setattr(os, "getpid", lambda: self._pid)
            self.left.append(self.chief.open(self.path, mode))  # nobody closes it any more
            self.left[-1].write(text)
            self.left[-1].flush()

    def goes_on(self) -> None:
        self.next.opening.moves(LEADS)
        self.last.opening.moves(FOLLOWS)


def without_nameless(real: Any) -> Any:
    """`os.open` of a file system on which each file has a name."""

    def opened(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError("it knows none")
        return real(path, flags, *args, **more)

    return opened


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Job(tmp_path, monkeypatch)
    yield made
    for file in made.left:
        file.close()


@pytest.mark.parametrize("last_closes_last", [True, False])
def test_the_new_chiefs_file_stands(job: Job, last_closes_last: bool) -> None:
    job.chief_writes("w", "chief 1\n")
    both = [(one, one.open(job.path, "w")) for one in (job.next, job.last)]
    for number, (_, file) in enumerate(both):
        file.write(f"{number} 1\n")
        file.flush()
    assert job.path.read_text() == "chief 1\n"
    job.goes_on()
    for number, (_, file) in enumerate(both):
        file.write(f"{number} 2\n")
    both[0][1].flush()
    assert job.path.read_text() == "0 1\n0 2\n"
    both[1][1].flush()
    for _, file in both if last_closes_last else both[::-1]:
        file.close()
    assert job.path.read_text() == "0 1\n0 2\n"
    # Later ones, too: its own, and no other's.
    for one, text in ((job.next, "next"), (job.last, "last")):
        with one.open(job.path, "w") as file:
            file.write(text)
    assert job.path.read_text() == "next"


def test_the_new_chief_goes_on_with_what_only_the_chief_appends(job: Job) -> None:
    for one in (job.next, job.last):
        job.left.append(one.open(job.path, "w"))
    job.chief_writes("w", "begun\n")
    job.chief_writes("a", "chief 1\n")
    next_, last = (one.open(job.path, "a") for one in (job.next, job.last))
    for file in (next_, last):
        file.write("nobody's\n")
        file.flush()
    job.goes_on()
    next_.write("next 2\n")
    last.write("last 2\n")
    for file in (next_, last):
        file.close()
    assert job.path.read_text().endswith("chief 1\nnext 2\n")


def test_the_new_chief_replaces_what_the_chief_would_have(job: Job) -> None:
    job.goes_on()
    for one, text in ((job.last, "last"), (job.next, "next")):
        new = job.path.with_name("new")
        with one.open(new, "w") as file:
            file.write(text)
        one.replace(new, job.path)
    assert job.path.read_text() == "next"


def test_a_successor_is_nobody_else_in_spite_of_its_name(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files have hidden names, those of two workers are two files; none is left behind."""
    monkeypatch.setattr(versions.os, "open", without_nameless(os.open))
    files = [worker(job.state, name).open(job.path, "w") for name in ("worker:1", "worker:1-77")]
    for number, file in enumerate(files):
        file.write(str(number) * 9000)
    hidden = {".log.worker-1", ".log.worker-1-77"}
    assert {p.name for p in job.path.parent.iterdir()} == hidden
    for file in files:
        file.close()
    assert {p.name for p in job.path.parent.iterdir()} == {"log"}


def test_what_a_dead_worker_has_left_is_removed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions.os, "open", without_nameless(os.open))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: job._pid)
        dead = worker(job.state, "worker:1-55").open(job.path, "w")
    assert job.path.with_name(".log.worker-1-55").exists()
    with job.next.open(job.path, "w") as file:
        assert {p.name for p in job.path.parent.iterdir()} == {".log.worker-1"}
        file.write("next")
    assert {p.name for p in job.path.parent.iterdir()} == {"log"}
    job.left.append(dead)
