"""Tests that several processes share (`pytest -n 2`): those of one file stay together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

WRITES = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(8))
def test(number):
    with pathlib.Path({log!r}).open("a") as log:
        log.write(f"{name} {{os.getpid()}}\\n")
"""


def test_a_file_has_one_process_and_all_of_hosts_too(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    tests = Path(__file__).parents[1]
    shutil.copy(tests / "conftest.py", tmp_path)
    log = tmp_path / "log"
    for name in ("a", "b", "c", "hosts/d", "hosts/e"):
        file = tmp_path / Path(name).parent / f"test_{Path(name).name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(WRITES.format(log=str(log), name=name))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, "-o", f"pythonpath={tests}", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    processes = defaultdict(set)
    for line in log.read_text().splitlines():
        name, pid = line.split()
        processes["hosts" if "hosts" in name else name].add(pid)
    assert {name: len(pids) for name, pids in processes.items()} == dict.fromkeys(
        ("a", "b", "c", "hosts"), 1
    )
    assert len(set.union(*processes.values())) == 2
