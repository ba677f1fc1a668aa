"""Both ends of what pyproject.toml declares: the lowest versions and the newest released ones.

Each end is a virtual environment of its own, in which real jobs run. Where this environment has
the newest versions already, all other tests are that end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras import tree

from tfrun.job import supported_versions

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPT = ROOT / "tests/options/scripts/trains.py"
LOWEST = dict(
    re.findall(
        r'^([\w-]+)==([\w.]+)(?:; python_version < "3.1\d")?$',
        (HERE / "lowest.txt").read_text(),
        re.M,
    )
)
INSTALL_SECONDS, JOB_SECONDS = 600, 120
NEWEST = ("keras", "tensorflow-cpu")
STEPS = 8  # of the script


def environment(folder: Path, *arguments: str) -> Path:
    """A virtual environment with tfrun and what it needs; returns its folder of commands."""
    venv.create(folder, with_pip=True)
    # Compiled when they are imported: most of TensorFlow's files never are.
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")
    install = [folder / "bin/python", "-m", "pip", "install", *quiet, *arguments]
    done = subprocess.run(
        [*install, "-e", f"{ROOT}[cpu]"],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"pip {arguments}:\n{done.stderr[-4000:]}"
    return folder / "bin"


def released(package: str) -> str:
    """The newest version that pip finds; "" where it finds none."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.match(rf"{package} \((.*)\)", done.stdout)
    return found[1] if found else ""


@pytest.fixture(scope="module", params=["lowest", "newest"])
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment with these versions."""
    folder = tmp_path_factory.mktemp("versions") / request.param
    if request.param == "lowest":
        return environment(folder, "-c", str(HERE / "lowest.txt"))
    found = {name: released(name) for name in NEWEST}
    if not all(found.values()):
        pytest.skip(f"pip finds no released versions: {found}")
    if all(supported_versions.version_of(name) == version for name, version in found.items()):
        pytest.skip(f"all tests run with the newest ones: {found}")
    return environment(folder, *(f"{name}=={version}" for name, version in found.items()))


@pytest.fixture(scope="module")
def train(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict]:
    """Trains a small model in an environment, and gives what the script has found."""

    def run(mode: str, *options: str, **env: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("job")
        out = folder / "out.json"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TFRUN_", "PYTHON"))}
        told = {"MODE": mode, "TEST_OUT": str(out), "TF_CPP_MIN_LOG_LEVEL": "2", **env}
        done = subprocess.run(
            [commands / "tfrun", *options, "--run-dir", folder / "run", SCRIPT],
            env={**inherited, **told},
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {**json.loads(out.read_text()), "err": done.stderr}

    return run


@pytest.fixture(scope="module")
def alone(train: Callable[..., dict]) -> dict[str, Any]:
    """What one worker computes."""
    return train("fit")


def assert_same(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert mine["iterations"] == theirs["iterations"] == STEPS
    pairs = zip(tree.flatten(mine["weights"]), tree.flatten(theirs["weights"]), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 2 * JOB_SECONDS)


@pytest.mark.parametrize("mode", ["fit", "loop"])
def test_two_workers_are_one(mode: str, train: Callable[..., dict], alone: dict) -> None:
    options = ["--steps-per-execution", "2"] if mode == "fit" else []
    mine = train(mode, "-n", "2", *options)
    assert mine["world"] == 2
    assert_same(mine, alone)


def test_a_lost_worker_costs_nothing(train: Callable[..., dict], alone: dict) -> None:
    mine = train("fit", "-n", "2", DIES="0:1:3")
    assert "worker 1" in mine["err"] and "restart" in mine["err"]
    assert_same(mine, alone)


def test_servers_with_a_shuffled_pipeline(train: Callable[..., dict]) -> None:
    mine = train("servers", "-n", "2", "--ps", "1")
    assert mine["iterations"] == STEPS
    assert all(np.isfinite(mine["losses"]))


def test_the_lowest_are_those_that_are_declared() -> None:
    declared = re.findall(
        r'"([\w-]+)(?:\[[\w-]+\])?>=([\d.]+)', (ROOT / "pyproject.toml").read_text()
    )
    wanted = {name: version for name, version in declared if name in LOWEST}
    assert set(wanted) == set(LOWEST)
    for name, version in LOWEST.items():
        assert re.sub(r"(\.0)+$", "", version) == wanted[name], name
    lowest = {"TensorFlow": LOWEST["tensorflow"], "Keras": LOWEST["keras"]}
    for program, version in lowest.items():
        assert supported_versions.release(version) == supported_versions.TESTED[program].lowest


def test_nothing_is_said_to_be_tested_that_is_not() -> None:
    for program, version in supported_versions.installed().items():
        newest = supported_versions.TESTED[program].newest
        assert newest <= supported_versions.release(version), (
            f"no test runs with {program} {newest}"
        )
        if newest < supported_versions.release(version):
            pytest.skip(f"{program} {version} is new: if all tests pass, it belongs into TESTED")
