"""How real processes ended, and what a person is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tfrun.job.exits import ExitStatus


def wait_status(code: str) -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0  # reaped here, not by Popen
    return status


@pytest.mark.parametrize(
    ("code", "expected", "shell", "told"),
    [
        ("pass", 0, 0, "exit code 0"),
        ("raise SystemExit(7)", 7, 7, "exit code 7"),
        ("import os; os._exit(255)", 255, 255, "exit code 255"),
        ("import os; os.kill(os.getpid(), 9)", -9, 137, "killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 15)", -15, 143, "killed by SIGTERM"),
        ("import os; os.abort()", -6, 134, "killed by SIGABRT"),
    ],
)
def test_the_end_of_a_real_process(code: str, expected: int, shell: int, told: str) -> None:
    status = ExitStatus.from_wait_status(wait_status(code))
    assert (status.code, status.shell_code, str(status)) == (expected, shell, told)


def test_a_signal_without_a_name() -> None:
    number = signal.SIGRTMIN + 3
    assert ExitStatus(code=-number).signal_name == f"signal {number}"


def test_a_code_that_no_signal_can_have_is_shown_all_the_same() -> None:
    assert ExitStatus(code=-4711).signal_name == "signal 4711"


def test_lack_of_memory_is_named() -> None:
    assert "memory ran out" in str(ExitStatus(code=-9, out_of_memory=True))
    assert ExitStatus(code=-9, out_of_memory=True).shell_code == 137
