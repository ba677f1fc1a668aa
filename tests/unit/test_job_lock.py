"""A run directory is one job's: another one is told who holds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfrun.job.errors import UsageError
from tfrun.job.lock import held

HOLDS = """
import sys
from pathlib import Path
from tfrun.job.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_job_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"TFRUN-110: .* by process {first.pid} on "):
            held(tmp_path).__enter__()
        with held(tmp_path, "worker-1"):  # one of the tasks that share a directory
            pass
        first.kill()
        first.wait(10)
        with held(tmp_path):
            pass
