"""The kernel's count of processes that it has killed for memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfrun.worker.memory import oom_kills


@pytest.mark.parametrize(
    ("vmstat", "kills"),
    [
        ("nr_free_pages 12\noom_kill 3\nnuma_hit 4\n", 3),
        ("oom_kill 0\n", 0),
        ("nr_free_pages 12\n", 0),
        ("oom_kill_total 7\n", 0),
        ("oom_kill\n", 0),
        ("oom_kill many\n", 0),
        ("", 0),
    ],
)
def test_counts(tmp_path: Path, vmstat: str, kills: int) -> None:
    (tmp_path / "vmstat").write_text(vmstat)
    assert oom_kills(tmp_path) == kills


def test_systems_without_the_count(tmp_path: Path) -> None:
    assert oom_kills(tmp_path / "nowhere") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_this_machine_has_the_count() -> None:
    assert "\noom_kill " in Path("/proc/vmstat").read_text()
    assert oom_kills() >= 0
