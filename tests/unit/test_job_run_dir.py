"""The run directory on real file systems: two at once, not writable, full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tfrun.job import run_dir
from tfrun.job.errors import UsageError

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_default_is_new_and_absolute(here: Path) -> None:
    path = run_dir.create(None, "train", NOW)
    assert path.parent == here / "tfrun-runs"
    assert path.name.startswith("train-2023111")
    assert [p.name for p in path.iterdir()] == ["logs"]


def test_many_runs_in_one_second_get_a_directory_each() -> None:
    with ThreadPoolExecutor(8) as threads:
        paths = list(threads.map(lambda _: run_dir.create(None, "train", NOW), range(40)))
    assert len(set(paths)) == 40


def test_a_stated_directory_is_used_again(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "kept").write_text("x")
    assert run_dir.create("run", "train", NOW) == run_dir.create("run", "train", NOW)
    assert sorted(p.name for p in (here / "run").iterdir()) == ["kept", "logs"]


@pytest.mark.parametrize(
    ("program", "start"),
    [("../../etc/x", "etc-x-"), ("", "job-"), ("...", "job-"), ("a b\nc", "a-b-c-"), ("é", "job-")],
)
def test_any_name_is_safe_in_a_path(program: str, start: str) -> None:
    name = run_dir.default_name(program, NOW)
    assert name.startswith(start)
    assert "/" not in name


def test_a_long_name_still_fits_the_file_system() -> None:
    assert run_dir.create(None, "x" * 255, NOW).is_dir()


def test_what_there_is_to_go_on_from(here: Path) -> None:
    for name, expected in ((".lock", False), (".new-ckpt-1", False), ("ckpt-5", True)):
        (here / "checkpoints" / name).mkdir(parents=True)
        assert run_dir.has_checkpoints(here / "checkpoints") is expected
    (here / "calls").mkdir()
    (here / "calls" / "call-0.safetensors").touch()
    assert run_dir.has_checkpoints(here)


def refused(stated: str | None) -> str:
    with pytest.raises(UsageError) as caught:
        run_dir.create(stated, "train", NOW)
    assert caught.value.code == "TFRUN-104"
    return str(caught.value)


def test_below_a_file(here: Path) -> None:
    (here / "file").write_text("")
    assert "Not a directory" in refused("file/run")
    assert "File exists" in refused("file")


def test_a_link_to_itself(here: Path) -> None:
    (here / "loop").symlink_to("loop")
    refused("loop")
    refused("loop/run")


def test_a_name_that_is_too_long() -> None:
    assert "File name too long" in refused("a" * 300)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_where_even_root_may_not_write() -> None:
    refused("/proc/sys/run")


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_without_permission(here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    assert "Permission denied" in refused("locked/run")


CREATE = """
from tfrun.job import run_dir
from tfrun.job.errors import UsageError
import sys
try:
    path = run_dir.create(sys.argv[1], "train", 0.0)
    if sys.argv[2] != "0":
        run_dir.write_job(path, {"args": "x" * int(sys.argv[2])})
except UsageError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def mounts() -> list[str]:
    """The command that gives a process mounts of its own."""
    command = ["unshare", "--mount", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("needs mount namespaces")
    return command


@pytest.mark.parametrize(
    ("options", "fill", "job_bytes", "told"),
    [
        ("size=64k", "", 100, None),
        ("size=64k,ro", "", 0, "Read-only file system"),
        ("size=64k", "head -c 1M /dev/zero > disk/filler; ", 0, "No space left on device"),
        ("size=64k", "", 100_000, "No space left on device"),
    ],
    ids=["room", "read-only", "full", "job.json does not fit"],
)
def test_disks(
    mounts: list[str], here: Path, options: str, fill: str, job_bytes: int, told: str | None
) -> None:
    (here / "disk").mkdir()
    script = (
        f"mount -t tmpfs -o {options} none disk && {{ {fill}true; }} 2>/dev/null; "
        'exec "$0" -c "$1" disk/run "$2"'
    )
    result = subprocess.run(
        [*mounts, "sh", "-c", script, sys.executable, CREATE, str(job_bytes)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if told is None:
        assert (result.returncode, result.stderr) == (0, "")
    else:
        assert result.returncode == 1
        assert result.stderr.startswith("TFRUN-104: the run directory ")
        assert told in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_job_json_is_whole(here: Path) -> None:
    run_dir.write_job(here, {"path": here, "name": "caf\udce9"})
    run_dir.write_job(here, {"second": 2})
    assert json.loads((here / "job.json").read_text()) == {"second": 2}
    assert [p.name for p in here.iterdir()] == ["job.json"]


def test_checkpoints_are_gone_on_from_until_the_job_has_finished(tmp_path: Path) -> None:
    folder = Path(run_dir.checkpoints(tmp_path, "", fresh=False, now=0.0))
    assert folder == tmp_path / "checkpoints"
    folder.mkdir()
    assert Path(run_dir.checkpoints(tmp_path, "", fresh=False, now=0.0)).exists()
    run_dir.mark_finished(str(folder))
    assert not Path(run_dir.checkpoints(tmp_path, "", fresh=False, now=0.0)).exists()
    assert len(list(tmp_path.glob("checkpoints-*"))) == 1


def test_fresh_puts_checkpoints_aside(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    folder = Path(run_dir.checkpoints(tmp_path, str(tmp_path / "own"), fresh=True, now=0.0))
    assert folder == tmp_path / "own"
    assert not folder.exists()
    assert len(list(tmp_path.glob("own-*"))) == 1


def test_marking_what_is_not_there_says_nothing(tmp_path: Path) -> None:
    run_dir.mark_finished(str(tmp_path / "missing"))


@pytest.mark.parametrize("content", [None, "", "[]", "{", '"text"'])
def test_no_last_job(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "job.json").write_text(content)
    assert run_dir.last_job(tmp_path) == {}
