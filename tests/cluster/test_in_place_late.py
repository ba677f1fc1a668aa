"""A worker that is busy with something long when another one dies is waited for, and stays."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path

import pytest

from conftest import Jobs

SCRIPT = Path(__file__).parent / "scripts/in_place_late.py"
SECONDS = 200


def bits(jobs: Jobs, where: str) -> str:
    options = ("-n", 3, "--in-place", "--threads-per-worker", 1, "--run-dir", "run")
    job = jobs.run(*options, SCRIPT, where, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    return re.findall(r"BITS (.*)", job.stdout)[0]


@functools.cache
def undisturbed() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return bits(Jobs(Path(folder), "undisturbed"), "nowhere")


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.parametrize("where", ["trace", "step", "callback"])
def test_no_worker_that_is_busy_is_ended(jobs, where):
    assert bits(jobs, where) == undisturbed()
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    killed = [e["task"] for e in events if e["event"] == "worker_exited" and e["code"]]
    (recovered,) = [event for event in events if event["event"] == "recovered"]
    assert killed == ["worker:2"] and recovered["in_place"] and not recovered["lost_steps"]
