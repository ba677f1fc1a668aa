"""The workers of a machine hold one copy of the arrays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("scripts") / "data_shared.py"


def shared(jobs, workers: int, how: str, megabytes: int) -> list[dict]:
    (jobs.directory / "out").mkdir()
    done = jobs.run(
        "-n", workers, "--run-dir", "run", SCRIPT, how, "out", megabytes, env={"WAIT_FOR": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    files = sorted((jobs.directory / "out").glob("*.pss"))
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "loads"), [("function", 1), ("each", 2)])
def test_two_workers_share_the_pages(jobs, how, loads):
    numbers = shared(jobs, 2, how, 64)
    assert sum(number["calls"] for number in numbers) == loads
    for number in numbers:
        assert number["rss"] >= 64 << 20
        # Proportional set size: each page divided by the number of processes that map it.
        assert number["pss"] == pytest.approx(number["rss"] / 2, rel=0.1)


@pytest.mark.slow
def test_four_workers_and_a_gigabyte(jobs):
    numbers = shared(jobs, 4, "function", 1024)
    assert sum(number["calls"] for number in numbers) == 1
    assert sum(number["pss"] for number in numbers) == pytest.approx(1 << 30, rel=0.1)


@pytest.mark.slow
def test_different_arrays_are_refused(jobs):
    (jobs.directory / "out").mkdir()
    done = jobs.run("-n", 2, SCRIPT, "different", "out", 1)
    assert done.returncode == 1
    assert "TFRUN-609" in done.stderr + done.stdout
