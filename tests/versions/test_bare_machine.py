"""`pip install tfrun[cpu]` from the wheel on a bare machine, with each supported Python.

All is downloaded, as a newcomer does it (bench/newcomer.sh). One of the Pythons other than that of
the tests has its turn every day; one that is not here is skipped: then only its dependencies are
looked up, and ruff reads the grammar.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from built_wheel import build, command, train_and_look
from conftest import Jobs
from docs_blocks import ROOT
from shares import ALL, DAY

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
OURS = "{}.{}".format(*sys.version_info)
INSTALL_SECONDS = 600
QUIET = ("--quiet", "--disable-pip-version-check", "--no-input")

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 240)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))[0]


def interpreter(version: str) -> str | None:
    """Where this Python is, on the path or among those of pyenv."""
    if version == OURS:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(pyenv.glob(f"{version}.*/bin/python"))
    # Those first: on the path pyenv has programs that only say which ones are not chosen.
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


def check_releases(version: str, wheel: Path, tmp_path: Path) -> None:
    """All that it needs has been released for this Python."""
    told = ("--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", "report.json")
    for_it = ("--python-version", version, "--target", tmp_path / "there")
    command(
        *(sys.executable, "-m", "pip", "install", *QUIET, *told, *for_it, f"{wheel}[cpu]"),
        cwd=tmp_path,
        seconds=INSTALL_SECONDS,
    )
    found = json.loads((tmp_path / "report.json").read_text())["install"]
    names = {item["metadata"]["name"] for item in found}
    assert {"tfrun", "keras"} <= names
    assert names & {"tensorflow-cpu", "tensorflow_cpu", "tensorflow"}


@pytest.mark.parametrize("version", PYTHONS)
def test_two_workers_train(version: str, wheel: Path, jobs: Jobs, tmp_path: Path) -> None:
    others = [other for other in PYTHONS if other != OURS]
    if version in others and not ALL and others.index(version) != DAY % len(others):
        pytest.skip("another day: TFRUN_TEST_SHARE=all runs it today")
    if not (python := interpreter(version)):
        check_releases(version, wheel, tmp_path)
        pytest.skip(f"python{version} is not here: a job from the wheel is NOT TESTED with it")
    stated = (f"PYTHON={python}", f"DIRECTORY={tmp_path}")
    newcomer = ("env", *stated, "bash", ROOT / "bench/newcomer.sh", wheel)
    said = command(*newcomer, cwd=tmp_path, seconds=INSTALL_SECONDS)
    assert re.search(r"\n4 commands, \d+\.\d minutes to the end", said), said
    command(tmp_path / "venv/bin/python", "-m", "pip", "check", cwd=tmp_path)
    out, parts = train_and_look(jobs, tmp_path / "venv/bin/tfrun")
    for rank in range(2):
        assert f"rank {rank} of 2 has {tmp_path / 'venv/lib'}" in out
    assert "page/page.js" in parts
