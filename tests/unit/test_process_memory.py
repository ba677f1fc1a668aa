"""The kernel's count of processes that it has killed for memory."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfrun.process.memory import oom_kills


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


LIMITED = """
import sys, time
from tfrun.process import memory
limit = memory.peak() + 50_000_000
memory.limit(limit)
held = bytearray(int(sys.argv[1]))
for place in range(0, len(held), 4096):
    held[place] = 1
del held
time.sleep(float(sys.argv[2]))
print(memory.peak() <= limit)
"""


def limited(size: int, seconds: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(size), str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_process_that_uses_more_than_its_limit_is_killed() -> None:
    assert limited(100_000_000, 30).returncode == -signal.SIGKILL


def test_a_process_that_stays_below_its_limit_goes_on() -> None:
    done = limited(10_000_000, 0.1)
    assert (done.returncode, done.stdout) == (0, "True\n")
