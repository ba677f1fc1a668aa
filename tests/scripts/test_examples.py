"""The examples that name neither tfrun nor a strategy; and every example is run by some test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# By how much its accuracy may differ from one process's: arrays are shuffled in another order.
UNCHANGED = {"image_classification.py": 0.02, "text_classification.py": 0.2}


def accuracy(shown: str) -> float:
    (found,) = re.findall(r"validation accuracy ([\d.]+)", shown)
    return float(found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", UNCHANGED)
def test_an_example_that_names_nothing_trains_on_two_workers(name: str, jobs) -> None:
    script, given = EXAMPLES / name, ("--epochs", "3")
    alone = subprocess.run(
        [sys.executable, script, *given],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=jobs.directory,
    )
    job = jobs.run("-n", 2, script, *given, timeout=150)
    assert job.returncode == 0, job.stderr
    assert "adopted: this script names no strategy" in job.stderr, job.stderr
    assert accuracy(job.stdout) == pytest.approx(accuracy(alone.stdout), abs=UNCHANGED[name])
    assert accuracy(job.stdout) > 0.4  # one of seven or ten classes


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("custom_loop.py", ()),
        ("multi_worker_with_keras.py", ()),
        ("multi_worker_with_ctl.py", ()),
        ("parameter_server_training.py", ("--ps", 1)),
    ],
)
def test_an_example_with_a_strategy_trains_on_two_workers(name: str, options, jobs) -> None:
    job = jobs.run("-n", 2, *options, EXAMPLES / name, timeout=150)
    assert job.returncode == 0, job.stderr
    accuracies = re.findall(r"accuracy:? (0\.\d+)", job.stdout)
    assert float(accuracies[-1]) > 0.6, job.stdout


def test_every_example_is_run_by_a_test() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for path in filter(Path.is_file, EXAMPLES.iterdir()):
        assert path.name in tests, path.name
