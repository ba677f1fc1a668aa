"""--in-place: workers go on in their processes when another one dies, and no bit changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "in_place.py"
OPTIONS = ("--threads-per-worker", 1, "--run-dir", "run")
SECONDS = 300


def trained(jobs, workers: int, victim: int, step: int, *options: object):
    """The bits, and the events."""
    given = ("-n", workers, *OPTIONS, *options)
    job = jobs.run(*given, SCRIPT, victim, step, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    (bits,) = re.findall(r"BITS (.*)", job.stdout)
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    return bits, [json.loads(line) for line in lines]


def of(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["event"] == kind]


def check(jobs, workers: int, victim: int, step: int, *replicas: object) -> None:
    wanted, _ = trained(jobs, workers, -1, 0, *replicas)
    options = (*replicas, "--in-place", "--fresh", "--ledger")
    bits, events = trained(jobs, workers, victim, step, *options)
    assert bits == wanted
    (recovered,), (grown,) = of(events, "recovered"), of(events, "grown")
    assert recovered["in_place"] and grown["in_place"] and not recovered["lost_steps"]
    assert [event["state"] for event in of(events, "successor")] == ["started", "ready", "taken"]
    ledger = jobs.run("ledger", "run")
    assert "every sample exactly once" in ledger.stdout, ledger.stdout + ledger.stderr


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize(
    ("victim", "step", "replicas"),
    [
        pytest.param(1, 6, ("--replicas", 4), id="the second of two, in an epoch"),
        pytest.param(0, 8, (), id="the chief, where validation comes"),
    ],
)
def test_a_death_costs_no_process(jobs, victim, step, replicas):
    check(jobs, 2, victim, step, *replicas)


@pytest.mark.thorough
@pytest.mark.timeout(4 * SECONDS)
def test_one_of_three_dies_after_the_first_step(jobs):
    check(jobs, 3, 1, 1, "--replicas", 4)


@pytest.mark.timeout(4 * SECONDS)
def test_a_spare_that_is_ready_takes_the_place(jobs):
    wanted, _ = trained(jobs, 2, -1, 0)
    bits, events = trained(jobs, 2, 1, 60, "--in-place", "--spares", 1, "--fresh")
    assert bits == wanted
    assert of(events, "recovered")[0]["in_place"]
    states = [event["state"] for event in of(events, "successor")]
    assert states[:3] == ["started", "ready", "taken"]
