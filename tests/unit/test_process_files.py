"""Files that all workers of a script write: whose stands, and that `open` stays `open`."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib.util
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrun.process.files import versions
from tfrun.process.files.callers import Caller, of_file
from tfrun.process.files.folders import DONE, Folders, around_lock
from tfrun.process.files.journal import Journal
from tfrun.process.files.mapped import Mapped, begun, goes_on
from tfrun.process.files.opening import Opening, key_of
from tfrun.process.files.rules import (
    Deed,
    Did,
    Name,
    appends,
    is_kept,
    is_left,
    newest_of_others,
    takes,
    whole_lines,
    writes_anew,
)

# Files that nobody closes are a part of what is tested.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

CHIEF, OTHER = "worker:0", "worker:1"


def deed(did: Did, task: str, n: int = 1, at: int = 1) -> Deed:
    pid = 10 if task == CHIEF else 11
    return Deed(did=did, path="/x", task=task, n=n, pid=pid, is_chief=task == CHIEF, at=at)


def name(*deeds: Deed, whole: bool = True, dead: int = 0, **more: Any) -> Name:
    alive = frozenset({10, 11} - {dead})
    return Name(**{"exists": True, "is_whole": whole, "deeds": deeds, "alive": alive, **more})


MINE = deed(Did.OPENED, OTHER)


@pytest.mark.parametrize(
    ("mine", "found", "expected"),
    [
        (MINE, name(), True),  # nobody else: what is there is of an earlier job
        (MINE, name(deed(Did.OPENED, CHIEF)), True),  # until the chief's is whole
        (MINE, name(deed(Did.CLOSED, CHIEF)), False),
        (MINE, name(deed(Did.CLOSED, CHIEF), exists=False), True),  # it has been moved away
        (deed(Did.OPENED, OTHER, 2), name(deed(Did.CLOSED, CHIEF, 1)), True),  # an old one
        (MINE, name(deed(Did.SHOWN, CHIEF)), False),  # a log, which is watched
        (MINE, name(deed(Did.SHOWN, CHIEF), dead=10), True),  # and gets no further
        (MINE, name(deed(Did.CLOSED, CHIEF), dead=10), False),  # but this one is whole
        (MINE, name(deed(Did.CLOSED, "worker:2")), True),  # one of the two
        (MINE, name(deed(Did.CLOSED, "worker:2", 2)), False),  # a later one is there
        (MINE, name(is_foreign=True), False),
        (MINE, name(whole=False), True),  # a file of its own, by rank
        (MINE, name(deed(Did.OPENED, "worker:2"), whole=False), False),
        (MINE, name(deed(Did.OPENED, OTHER), whole=False), True),  # which is itself
        (deed(Did.OPENED, CHIEF), name(deed(Did.CLOSED, OTHER)), True),
        (deed(Did.OPENED, CHIEF), name(deed(Did.SHOWN, OTHER), whole=False), True),
    ],
)
def test_whose_version_takes_the_name(mine: Deed, found: Name, expected: bool) -> None:
    assert takes(mine, found) == expected


def test_what_another_worker_did_since() -> None:
    deeds = [deed(Did.MADE, CHIEF, at=5), deed(Did.MADE, OTHER, at=9)]
    assert newest_of_others(deeds, Did.MADE, OTHER, 0) == 5
    assert newest_of_others(deeds, Did.MADE, OTHER, 5) == 0
    assert newest_of_others(deeds, Did.REMOVED, OTHER, 0) == 0
    assert newest_of_others(deeds, Did.MADE, CHIEF, 5) == 9


def test_the_last_one_removes_a_file() -> None:
    both = frozenset({10, 11})
    for did in (Did.OPENED, Did.SHOWN, Did.CLOSED, Did.APPENDS):
        assert is_kept([deed(did, CHIEF)], OTHER, both)
        assert not is_kept([deed(did, CHIEF)], CHIEF, both)
        assert not is_kept([deed(did, CHIEF)], OTHER, frozenset({11}))
        assert not is_kept([deed(did, CHIEF), deed(Did.REMOVED, CHIEF, at=2)], OTHER, both)
        assert is_kept([deed(Did.REMOVED, CHIEF), deed(did, CHIEF, at=2)], OTHER, both)
        assert is_left([deed(did, CHIEF), deed(Did.REMOVED, OTHER, at=2)])
        assert not is_left([deed(Did.REMOVED, OTHER), deed(did, CHIEF, at=2)])


def test_modes() -> None:
    anew = ["w", "wb", "bw", "w+", "wb+", "w+b", "wt", "tw", "x", "xb", "x+b"]
    assert all(map(writes_anew, anew))
    assert not any(
        map(writes_anew, ["r", "a", "r+", "a+", "rb", "wr", "wx", "wbt", "ww", "w++", "q", "wU"])
    )
    assert [
        m for m in ["a", "ab", "at", "ta", "ba", "a+", "ab+", "w", "r", "aa"] if appends(m)
    ] == ["a", "ab", "at", "ta", "ba"]
    assert whole_lines(b"ab\nc\nde") == 5 and whole_lines(b"ab") == 0


def test_who_calls() -> None:
    keras_folder, numpy_file = (
        Path(spec.origin)
        for spec in map(importlib.util.find_spec, ("keras", "numpy"))
        if spec and spec.origin
    )
    keras_folder = keras_folder.parent
    assert of_file(os.__file__) is None and of_file("<frozen os>") is None
    assert of_file(str(numpy_file)) is Caller.LIBRARY
    assert of_file(str(keras_folder / "src/saving/saving_lib.py")) is Caller.OURS
    assert of_file(str(keras_folder / "src/utils/file_utils.py")) is Caller.LIBRARY
    assert of_file(versions.__file__) is Caller.OURS
    assert of_file(__file__) is of_file("<stdin>") is of_file("/home/me/t.py") is Caller.SCRIPT


class Workers:
    """Two of them, in one process: what the chief uses and what the other one does."""

    def __init__(self, folder: Path) -> None:
        self.journals = [
            Journal(folder / "j", task, is_chief=task == CHIEF) for task in (CHIEF, OTHER)
        ]
        tasks = zip(self.journals, (CHIEF, OTHER), strict=True)
        self.both = [(Opening(j, task, 2), Folders(j, task)) for j, task in tasks]
        self.chief, self.other = (opening.replacement() for opening, _ in self.both)

    def of_os(self, name: str) -> list[Callable[..., Any]]:
        return [folders.around(name, getattr(os, name)) for _, folders in self.both]

    def rmtree(self) -> list[Callable[..., Any]]:
        return [folders.around_rmtree(shutil.rmtree) for _, folders in self.both]


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    (tmp_path / "state").mkdir()
    (tmp_path / "out").mkdir()
    return Workers(tmp_path / "state")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "file"


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("chief_first", [True, False])
def test_the_chiefs_stands(workers: Workers, path: Path, mode: str, chief_first: bool) -> None:
    first, second = (workers.chief, workers.other)[:: 1 if chief_first else -1]
    one, two = first(path, mode), second(path, mode)
    assert not path.exists() or path.stat().st_size == 0
    for file in (one, two):
        mine = "c" * 20000 if (file is one) == chief_first else "o" * 10000
        file.write(mine if "b" not in mode else mine.encode())
    two.close()
    assert set(path.read_text()) == ({"o"} if chief_first else {"c"})
    one.close()
    assert path.read_text() == "c" * 20000
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_log_is_seen_when_it_is_flushed(workers: Workers, path: Path) -> None:
    chief, other = workers.chief(path, "w"), workers.other(path, "w", buffering=1)
    other.write("other\n")
    assert not path.exists(), "the chief is about to"
    print("chief", file=chief, flush=True)
    assert path.read_text() == "chief\n"
    other.close()
    chief.write("more\n")
    chief.flush()
    assert path.read_text() == "chief\nmore\n"
    alone = workers.other(path.with_name("rank-1"), "w", 1)
    alone.write("line\n")
    assert path.with_name("rank-1").read_text() == "line\n"


def test_a_mapped_file_is_seen_when_it_has_been_written(workers: Workers, path: Path) -> None:
    with workers.other(path, "w+b") as file:
        file.truncate(8)
        memory = Mapped(file.fileno(), 8)
    assert not path.exists()
    memory[:] = b"whole..."
    memory.flush()
    assert path.read_bytes() == b"whole..."


def test_what_was_begun_and_is_read_is_opened_by_its_name(workers: Workers, path: Path) -> None:
    """Its own descriptor is closed by then, and may be another file's."""

    def open_memmap(file: Any) -> None:
        begun(file.raw, sys._getframe())
        file.write(b"head")

    with workers.other(path, "wb") as file:
        open_memmap(file)
    key = key_of(path)
    assert not path.exists() and goes_on(lambda: key, "r+b") is file.raw
    with workers.other(path, "rb") as seen:
        assert seen.read() == b"head"
    assert goes_on(lambda: key, "r+b") is None


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_what_is_mapped_is_the_file_whose_head_was_read(
    mode: Any, workers: Workers, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chief's comes between the two: it would be mapped, and made longer, for the other's."""

    def save(opens: Any, value: int, size: int) -> None:
        with opens(path, "wb") as file:
            np.save(file, np.full(size, value))

    def the_chiefs_comes(*args: Any, **options: Any) -> Any:
        if not comes:
            comes.append(save(workers.chief, 0, 1000))
        return read_head(*args, **options)

    comes = list[None]()
    read_head = np.lib._format_impl._read_array_header  # type: ignore[attr-defined]
    monkeypatch.setattr("numpy.lib._format_impl._read_array_header", the_chiefs_comes)
    for module in ("numpy.lib._format_impl", "numpy._core.memmap"):
        monkeypatch.setattr(sys.modules[module], "open", workers.other, raising=False)
    save(workers.other, 1, 2000)
    descriptors = _descriptors()
    mapped = np.lib.format.open_memmap(path, mode)
    assert mapped.shape == (2000,) and (mapped == 1).all()
    del mapped
    assert _descriptors() <= descriptors
    again = np.lib.format.open_memmap(path, mode)
    assert again.shape == (1000,) and (again == 0).all()
    assert path.stat().st_size == 1000 * 8 + 128, "it was made longer"


def test_a_head_that_was_read_in_vain_is_no_file_to_read_later(
    workers: Workers, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no array of numbers is not mapped; the file may be another one when it is read."""
    monkeypatch.setattr(sys.modules["numpy.lib._format_impl"], "open", workers.other, raising=False)
    with workers.other(path, "wb") as file:
        np.save(file, np.array([None]))
    with pytest.raises(ValueError, match="objects"):
        np.lib.format.open_memmap(path, "r")
    with workers.chief(path, "wb") as file:
        file.write(b"new")
    with workers.other(path, "rb") as seen:
        assert seen.read() == b"new"


def test_who_reads_what_he_is_writing_sees_it(workers: Workers, path: Path) -> None:
    file = workers.other(path, "wb", buffering=0)
    file.write(b"abc")
    assert not path.exists()
    with workers.other(path) as reader:
        assert reader.read() == "abc"
    workers.of_os("remove")[1](path)
    assert not path.exists()


def test_it_is_a_file_as_any_other(workers: Workers, path: Path) -> None:
    path.write_text("old")
    path.chmod(0o640)
    for mode, options in (
        ("w", {"encoding": "latin-1", "newline": "\r\n"}),
        ("w+", {}),
        ("wb", {}),
    ):
        ours = workers.chief(path, mode, **options)
        pythons: Any = open
        theirs = pythons(path.with_name("theirs"), mode, **options)
        assert isinstance(ours, type(theirs))
        assert ours.name == path and ours.mode == theirs.mode
        for file in (ours, theirs):
            file.write("ä\n" if "b" not in mode else b"a\n")
            assert (file.seekable(), file.readable(), file.tell()) == (
                True,
                "+" in mode,
                file.tell(),
            )
        assert ours.tell() == theirs.tell()
        ours.close()
        theirs.close()
        ours.close()
        assert path.read_bytes() == path.with_name("theirs").read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    workers.other(path.with_name("dropped"), "w").write("by the collector")
    gc.collect()
    assert path.with_name("dropped").read_text() == "by the collector"


def test_exclusive_is_against_earlier_files_only(workers: Workers, path: Path) -> None:
    for ours, text in ((workers.other, "o"), (workers.chief, "c")):
        with ours(path, "x") as file:
            file.write(text)
        with pytest.raises(FileExistsError):
            ours(path, "x")
    assert path.read_text() == "c"


def test_any_doubt_leaves_it_to_python(workers: Workers, path: Path, tmp_path: Path) -> None:
    target, link, hard, pipe = (path.with_name(n) for n in ("target", "link", "hard", "pipe"))
    target.write_text("old")
    link.symlink_to(target)
    os.link(target, hard)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    descriptor = os.open(path.with_name("fd"), os.O_CREAT | os.O_WRONLY)
    for file in (link, hard, pipe, descriptor, os.fsencode(path), os.devnull):
        with workers.other(file, "w") as opened:
            assert type(opened) is io.TextIOWrapper, file
            opened.write("new")
    os.close(reader)
    assert link.is_symlink() and target.read_text() == "new" and hard.samefile(target)
    with workers.other(path, "w", opener=os.open) as opened:
        assert type(opened) is io.TextIOWrapper
    for wrong, error in (
        ((tmp_path, "w"), IsADirectoryError),
        ((tmp_path / "no" / "file", "w"), FileNotFoundError),
        ((path, "wz"), ValueError),
        ((path, "wb", -1, "utf-8"), ValueError),
        ((path, "w", 0), ValueError),
        ((path, None), TypeError),
        ((3.5, "w"), TypeError),
    ):
        with pytest.raises(error):
            workers.other(*wrong)


def test_without_its_memory_it_is_pythons_own(workers: Workers, path: Path, tmp_path: Path) -> None:
    late = workers.chief(path, "w")
    shutil.rmtree(tmp_path / "state")
    late.write("whole")
    late.close()
    assert path.read_text() == "whole"
    assert type(workers.other(path, "w")) is io.TextIOWrapper
    workers.of_os("mkdir")[0](path.with_name("folder"))


def test_file_systems_without_nameless_inodes(
    workers: Workers, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def without(name: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "")
        return real(name, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", without)
    one, two = workers.other(path, "w"), workers.chief(path, "w")
    one.write("o")
    two.write("c")
    two.close()
    one.close()
    assert path.read_text() == "c"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file(
    workers: Workers, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("old")
    file = workers.other(path, "w")
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, file.fileno())
    os.close(full)
    with pytest.raises(OSError, match="No space"):
        file.write("new" * 10000)
    with contextlib.suppress(OSError):
        file.close()
    assert path.read_text() == "old"


def test_on_a_full_disk_the_chief_leaves_what_it_has_written(
    workers: Workers, small_disk: Path
) -> None:
    path = small_disk / "file"
    with (
        pytest.raises(OSError, match="No space"),
        workers.chief(path, "wb", buffering=0) as file,
    ):
        while True:
            file.write(bytes(100_000))
    assert path.stat().st_size > 100_000


def test_a_fork_closes_only_its_copy(workers: Workers, path: Path) -> None:
    file = workers.other(path, "wb", buffering=0)
    file.write(b"half")
    if not (child := os.fork()):
        file.close()
        workers.other(path.with_name("child"), "w").write("child's")
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not path.exists() and path.with_name("child").read_text() == "child's"
    file.close()
    assert path.read_text() == "half"


def test_sigkill_leaves_nothing(workers: Workers, path: Path) -> None:
    if not (child := os.fork()):
        file = workers.other(path, "w")
        file.write("half" * 10000)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert not list(path.parent.iterdir())


def test_appended_lines_are_whole_and_only_the_chiefs_in_its_file(
    workers: Workers, path: Path
) -> None:
    one, two = workers.chief(path, "a"), workers.other(path, "a")
    for _ in range(3000):
        one.write("chief\n")
        two.write("other\n")
    one.close()
    two.write("begun")
    two.flush()
    assert path.read_text().endswith("begun")
    two.write("\n")
    two.close()
    assert set(path.read_text().splitlines()) == {"chief", "other", "begun"}
    with workers.chief(path, "w") as file:
        file.write("header\n")
    for ours in (workers.other, workers.chief):
        with ours(path, "a") as file:
            file.write(f"{ours is workers.chief}\n")
    assert path.read_text() == "header\nTrue\n"


def test_what_is_locked_is_one_file(workers: Workers, path: Path) -> None:
    import fcntl

    flock = around_lock(fcntl.flock)
    with workers.other(path, "w") as mine, workers.chief(path, "w") as chiefs:
        flock(mine, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            flock(chiefs.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_second_worker_finds_it_done(workers: Workers, path: Path) -> None:
    other, new = path.with_name("other"), path.with_name("new")

    def made(path: Path) -> None:
        path.write_text("x")

    for name, before, error in (
        ("mkdir", lambda p: None, FileExistsError),
        ("rmdir", lambda p: None, FileNotFoundError),
        ("remove", made, FileNotFoundError),
        ("unlink", made, FileNotFoundError),
    ):
        before(other)
        for function in workers.of_os(name):
            function(other)
        for function in workers.of_os(name):
            with pytest.raises(error):
                function(other)
    for name in ("rename", "replace"):
        other.write_text("x")
        for function in workers.of_os(name):
            function(other, new)
        with pytest.raises(FileNotFoundError):
            workers.of_os(name)[0](other, new)
    assert set(DONE) == {"mkdir", "rmdir", "remove", "unlink", "rename", "replace"}


def test_a_folder_that_was_there_before_the_job_exists(workers: Workers, path: Path) -> None:
    path.mkdir()
    for mkdir in workers.of_os("mkdir"):
        with pytest.raises(FileExistsError):
            mkdir(path)


def test_a_late_worker_clears_no_new_folder(workers: Workers, path: Path) -> None:
    path.mkdir()
    (chief_mkdir, late_mkdir), (chief_rmtree, late_rmtree) = (
        workers.of_os("mkdir"),
        workers.rmtree(),
    )
    for _ in range(2):
        chief_rmtree(path)
        chief_mkdir(path)
        with workers.chief(path / "result", "w") as file:
            file.write("x")
        late_rmtree(path)
        late_mkdir(path)
        assert (path / "result").exists()
        with workers.other(path / "result", "w") as file:
            file.write("y")
    late_rmtree(path)
    assert not path.exists()


@pytest.mark.parametrize("quick", [0, 1])
def test_a_quick_worker_takes_no_file_from_who_reads_it(
    workers: Workers, path: Path, quick: int
) -> None:
    removes, opens = workers.of_os("remove"), (workers.chief, workers.other)
    for text in ("one", "two"):
        for ours in opens:
            with ours(path, "x") as file:
                file.write(text)
        removes[quick](path)
        with opens[1 - quick](path) as file:
            assert file.read() == text
        removes[1 - quick](path)
        assert not path.exists()


def test_a_late_worker_removes_no_new_file(workers: Workers, path: Path) -> None:
    path.write_text("of an earlier job")
    chief_removes, late_removes = workers.of_os("remove")
    chief_removes(path)
    with workers.chief(path, "w") as file:
        file.write("new")
    late_removes(path)
    assert path.read_text() == "new"
    with workers.other(path, "x") as file:  # for this one it is gone
        file.write("late")
    assert path.read_text() == "new"


def test_an_hdf5_file_that_was_removed_begins_anew(
    workers: Workers, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is the other worker's, which is further on: h5py would find its names in it."""
    written: list[dict[str, int]] = [{}, {}]  # each process has its own
    for _ in range(2):
        for worker, (opening, _) in enumerate(workers.both):
            monkeypatch.setattr(versions, "_last", written[worker])
            for text in (b"one", b"two"):
                file = opening.for_library(path, None, "a")
                assert file is not None and file.begun == (text == b"two")
                file.is_kept = True
                file.write(text)
                file.close()
        for worker, remove in enumerate(workers.of_os("remove")):
            monkeypatch.setattr(versions, "_last", written[worker])
            remove(path)


def test_what_only_one_removes_is_gone_at_the_end(workers: Workers, path: Path) -> None:
    for ours in (workers.chief, workers.other):
        with ours(path, "w") as file:
            file.write("text")
    workers.of_os("remove")[0](path)
    for _, folders in workers.both:
        folders.end()
    assert not path.exists()


@pytest.mark.parametrize("first", [0, 1])
def test_the_chiefs_stands_under_a_new_name(workers: Workers, path: Path, first: int) -> None:
    opens, moves = (workers.chief, workers.other), workers.of_os("replace")
    new = path.with_name("new")
    for turn in "12":
        for worker in (first, 1 - first):
            with opens[worker](new, "w") as file:
                file.write(f"{worker}{turn}")
            moves[worker](new, path)
            assert not new.exists()
        assert path.read_text() == f"0{turn}"


def test_names_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    assert key_of("a") == key_of(tmp_path / "a") == key_of("link/./a") == str(tmp_path / "a")
    assert [key_of(p) for p in (3, b"a", "", ".", "a/..", "a\0", None)] == [""] * 7
