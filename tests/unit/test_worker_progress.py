"""Who stands still, and who only waits for the one that does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfrun.worker import progress
from tfrun.worker.progress import Phase, Progress, Reading, hung


def reading(phase: Phase, seconds_ago: float, step: float = 0.01) -> Reading:
    return Reading(since=1000.0 - seconds_ago, phase=phase, step_seconds=step)


@pytest.mark.parametrize(
    ("seen", "replaced"),
    [
        ({"a": reading(Phase.BETWEEN, 31), "b": reading(Phase.STEP, 31)}, {"a"}),
        ({"a": reading(Phase.BETWEEN, 29), "b": reading(Phase.STEP, 29)}, set()),
        # The one that it waits for may be on another machine: twice the time.
        ({"a": reading(Phase.STEP, 59)}, set()),
        ({"a": reading(Phase.STEP, 61), "b": reading(Phase.STEP, 61)}, {"a", "b"}),
        # Long steps take long: ten of them.
        ({"a": reading(Phase.BETWEEN, 99, step=10.0)}, set()),
        ({"a": reading(Phase.BETWEEN, 101, step=10.0)}, {"a"}),
        # Validation, tracing, saving have no usual time.
        ({"a": reading(Phase.OTHER, 10_000)}, set()),
        ({}, set()),
    ],
)
def test_who_is_replaced(seen: dict[str, Reading], replaced: set[str]) -> None:
    assert set(hung(seen, now=1000.0, timeout=30.0)) == replaced


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = progress.path_of(tmp_path, "worker:1")
    assert progress.read(path) is None
    mine = Progress(path)
    assert progress.read(path) is None  # nothing shown yet

    def phase() -> Phase:
        found = progress.read(path)
        assert found is not None
        return found.phase

    mine.step_begins()
    assert phase() is Phase.OTHER  # the first step is traced
    mine.step_returned()
    assert phase() is Phase.BETWEEN
    mine.step_begins()
    assert phase() is Phase.STEP
    mine.step_returned()
    with mine.waiting():
        assert phase() is Phase.STEP
    assert phase() is Phase.BETWEEN
    mine.other()
    with mine.waiting():
        assert phase() is Phase.OTHER


@pytest.mark.parametrize("content", [b"", b"short", bytes(24), b"\xff" * 24])
def test_a_strange_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "progress-a"
    path.write_bytes(content)
    assert progress.read(path) is None


def test_the_signal_writes_all_stacks() -> None:
    code = (
        "import os, threading\n"
        "from tfrun.worker import progress\n"
        "progress.dump_stacks_on_signal()\n"
        "def named_function(): os.kill(os.getpid(), progress.DUMP_SIGNAL)\n"
        "named_function()\n"
        "print('goes on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "in named_function" in done.stderr
    assert done.stdout == "goes on\n"
