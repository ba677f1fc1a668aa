"""The directory in memory that an agent keeps for its workers' snapshots."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tfrun.agent import snapshot_directory as states
from tfrun.agent.snapshot_directory import StateDir, state_dir

OLD = 1_000_000_000  # seconds since the epoch


def test_each_agent_of_each_job_has_its_own() -> None:
    paths = {state_dir(token, agent) for token in ("t", "u") for agent in ("a", "b")}
    assert len(paths) == 4
    for path in paths:
        assert path.name.startswith("tfrun-")
        assert int(path.name[6:], 16) >= 0 and len(path.name) == 14
    assert state_dir("t", "a") == state_dir("t", "a")


def test_little_shared_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "LEAST_BYTES", 1 << 60)
    assert state_dir("t", "a").parent == Path(tempfile.gettempdir())
    assert not states.is_large(Path("/no/such/directory"))
    monkeypatch.setattr(states, "LEAST_BYTES", 1)
    assert state_dir("t", "a").parent == Path("/dev/shm")


def test_it_is_private_and_goes_with_its_agent(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "tfrun-00000000")
    assert state.path.stat().st_mode & 0o777 == 0o700
    (state.path / "part").write_text("x")
    state.close()
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tfrun.agent.snapshot_directory import StateDir
StateDir(Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_agent_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left, young, mine = (tmp_path / f"tfrun-0000000{number}" for number in range(3))
    subprocess.run([sys.executable, "-c", KILLED, str(left)], check=False, timeout=30)
    assert left.is_dir()
    os.utime(left, (OLD, OLD))
    young.mkdir()  # another agent is about to lock it
    other = tmp_path / "tfrun-something-else"
    other.mkdir()
    os.utime(other, (OLD, OLD))
    state = StateDir(mine)
    assert sorted(tmp_path.iterdir()) == sorted([young, mine, other])
    state.close()


def test_what_a_living_agent_holds_stays(tmp_path: Path) -> None:
    first = StateDir(tmp_path / "tfrun-00000000")
    os.utime(first.path, (OLD, OLD))
    second = StateDir(tmp_path / "tfrun-00000001")
    assert first.path.is_dir()
    second.close()
    first.close()


def test_an_agent_that_comes_back_has_a_directory_of_its_own(tmp_path: Path) -> None:
    assert state_dir("t", "a", 0) == state_dir("t", "a") != state_dir("t", "a", 1)
    path = tmp_path / "tfrun-00000000"
    state = StateDir(path)
    with pytest.raises(OSError):
        states.remove_if_left(path)  # its agent lives
    assert path.is_dir()
    state.close()
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=30)
    states.remove_if_left(path)
    assert not path.exists()
