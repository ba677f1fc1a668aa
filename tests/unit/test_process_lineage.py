"""Processes that end with their parents, by the kernel or by watching."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from conftest import wait_until
from tfrun.process import lineage

CHILD = {
    "kernel": "lineage.die_with_parent(os.getppid()); print('ready', flush=True); signal.pause()",
    "watching": "parent = os.getppid(); print('ready', flush=True); "
    "lineage.watch_parent(parent, 0.01)",
}


@pytest.mark.parametrize("way", CHILD)
def test_a_child_ends_with_its_killed_parent(way: str) -> None:
    if way == "kernel" and sys.platform != "linux":
        pytest.skip("PR_SET_PDEATHSIG is Linux's")
    child = f"import os, signal\nfrom tfrun.process import lineage\n{CHILD[way]}"
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    wait_until(lambda: not _runs(pid), "the child ended", 5)


def test_a_process_without_a_group_of_its_own_is_told_from_a_signalled_one() -> None:
    with subprocess.Popen(["sleep", "60"]) as same:
        assert not lineage.kill_group(same.pid, signal.SIGKILL)
        same.kill()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as leader:
        assert lineage.kill_group(leader.pid, signal.SIGTERM)
        assert leader.wait(5) == -signal.SIGTERM


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
