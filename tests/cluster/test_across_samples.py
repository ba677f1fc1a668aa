"""`evaluate` and `predict` where a sample's result depends on the other samples of its batch."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "across_samples.py"
ACROSS = ["moving", "samples", "centred", "largest", "condition", "between", "normalized"]


@functools.cache
def plain_python() -> dict[str, np.ndarray]:
    done = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, timeout=200, check=True
    )
    return results(done.stdout)


def results(printed: str) -> dict[str, np.ndarray]:
    lines = re.findall(r"RES (\S+ \S+) (.*)", printed)
    return {name: np.array(values.split(), float) for name, values in lines}


@pytest.mark.net
@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_it_is_plain_pythons(jobs: Jobs, workers: int) -> None:
    job = jobs.run("-n", workers, "--run-dir", "run", SCRIPT, timeout=300)
    assert job.returncode == 0, job.stderr[-3000:]
    found, wanted = results(job.stdout), plain_python()
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-5, atol=1e-6, err_msg=name)

    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    reports = [event["report"] for event in map(json.loads, lines) if "report" in event]
    told = [one["text"] for one in reports if "so each worker computes all" in one.get("text", "")]
    # Each of both calls of each model is told once, and none of those that compute samples apart.
    assert len(told) == 2 * len(ACROSS), told
    doubts = [one["text"] for one in reports if one["kind"] == "doubt"]
    (validation,) = [text for text in doubts if text.startswith("the validation of model.fit")]
    (generator,) = [text for text in doubts if text.startswith("model.predict")]
    assert "across_samples.py" in validation and "across_samples.py" in generator
