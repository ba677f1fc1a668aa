"""The examples that search hyperparameters: each trial is a job, and none outlives its search."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Jobs
from docs_blocks import ROOT

SECONDS = 400

pytestmark = [pytest.mark.net, pytest.mark.timeout(SECONDS + 60)]


def search(jobs: Jobs, example: str, trials: int) -> str:
    """Runs an example to its end, and returns what it has printed."""
    words = [sys.executable, ROOT / "examples" / example, "--trials", str(trials)]
    done = subprocess.run(
        words,
        cwd=jobs.directory,
        env=jobs.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    # The best of the trials is what one of the jobs, by its status, has ended with.
    found = re.search(r"^best: .*'rate': .* val_loss (\d\.\d{4})$", done.stdout, re.M)
    assert found, done.stdout[-2000:]
    assert found[1] in [last_loss(jobs, name) for name in runs(jobs.directory)]
    return done.stdout + done.stderr


def last_loss(jobs: Jobs, run: str) -> str:
    epochs = json.loads(jobs.run("status", "--json", run).stdout)["epochs"]
    return f"{epochs[-1]['logs']['val_loss']:.4f}" if epochs else ""


def runs(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "tfrun-runs").glob("trial-*"))


def test_optuna_prunes_by_the_status_of_a_running_job(jobs: Jobs) -> None:
    out = search(jobs, "search_optuna.py", 3)
    assert runs(jobs.directory) == ["trial-0", "trial-1", "trial-2"]
    # The sampler's seed makes the second guess a far worse one than the first.
    assert re.search(r"^trials: complete, pruned, (pruned|complete)$", out, re.M), out[-2000:]
    assert "stopped by SIGINT" in out


def test_keras_tuner_is_told_what_the_jobs_end_with(jobs: Jobs) -> None:
    search(jobs, "search_keras_tuner.py", 2)
    assert len(runs(jobs.directory)) == 2
