"""Processes that nobody can end, and a zygote that tells of no end: the others go on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from workers import SCRIPTS, shown_by

# In the place of a process that hangs in the kernel (NFS, a GPU's driver), which no test can make:
# on the second machine SIGKILL does nothing to the one whose number is in the file "unkillable".
UNKILLABLE = """
import os

def refusing(kill):
    def refuse(pid, signum):
        try:
            with open("unkillable") as file:
                if signum == 9 and int(file.read()) == pid:
                    return
        except (OSError, ValueError):
            pass
        kill(pid, signum)
    return refuse

os.kill, os.killpg = refusing(os.kill), refusing(os.killpg)
"""


def run(folder: Path, workers: str, fault: str, exit_code: int = 0) -> str:
    """A job of one worker on each of two "machines", or on one of them."""
    other = folder / "other"
    other.mkdir(exist_ok=True)
    (other / "sitecustomize.py").write_text(UNKILLABLE)
    return shown_by(
        [sys.executable, SCRIPTS / "two_agents.py", workers, SCRIPTS / "recovery_small.py"],
        {"FAULT": fault, "OTHER_PATH": str(other)},
        cwd=folder,
        timeout=120,
        exit_code=exit_code,
    )


def weights(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("WEIGHTS")]
    return line


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return weights(run(tmp_path_factory.mktemp("undisturbed"), "2", ""))


def test_a_zygote_that_is_stopped_is_continued(tmp_path: Path, wanted: str) -> None:
    """It told of no end any more: the job ended, with nothing saved."""
    shown = run(tmp_path, "2", "zygote")
    assert "was stopped (SIGSTOP), and has been continued" in shown
    assert "resumed at step 61 with 2 workers" in shown
    assert weights(shown) == wanted


def test_the_machine_of_a_process_that_cannot_be_ended_is_lost_and_the_other_goes_on(
    tmp_path: Path,
) -> None:
    shown = run(tmp_path, "1:2", "unkillable")
    assert "b was given up: its workers cannot be ended, not even by SIGKILL" in shown
    assert re.search(r"resumed at step (60|61) with 1 worker\b", shown), shown
    assert weights(shown)


def test_where_the_job_needs_that_machine_the_memory_is_saved_first(
    tmp_path: Path, wanted: str
) -> None:
    shown = run(tmp_path, "2", "unkillable", exit_code=1)
    assert "b was given up: its workers cannot be ended" in shown
    assert re.search(r"step (60|61) is saved in checkpoints", shown), shown
    again = run(tmp_path, "2", "")
    assert "Epoch 1/3" not in again
    assert weights(again) == wanted
