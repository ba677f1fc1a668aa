"""`gradient_accumulation_steps`: a step that updates no weight yet is a step like any other.

Its gradients are summed over all replicas at once, so that each worker has what has been
accumulated: no death between two updates loses a step.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "of_replicas.py"
OPTIONS = ("--replicas", 3, "--threads-per-worker", 1, "--run-dir", "run")
SECONDS = 120


class Trained(NamedTuple):
    """What a job has shown.

    Attributes:
      weights: their bits.
      losses: those of each epoch, to the last bit.
      optimizer: the bits of its variables, what it has accumulated among them.
      events: all.
      said: on the terminal.
    """

    weights: str
    losses: str
    optimizer: str
    events: list[dict]
    said: str

    def of(self, kind: str) -> list[dict]:
        return [event for event in self.events if event["event"] == kind]


def trained(jobs: Jobs, workers: int, *options: object, **env: str) -> Trained:
    job = jobs.run(
        *("-n", workers, *OPTIONS, *options, SCRIPT, "accumulating"), env=env, timeout=SECONDS
    )
    assert job.returncode == 0, job.stderr[-3000:]
    (line,) = [line for line in job.stdout.splitlines() if "BITS " in line]
    weights, rest = line.partition("BITS accumulating ")[2].split(" ", 1)
    losses, optimizer = rest.rsplit(" ", 1)
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return Trained(weights, losses, optimizer, events, job.stderr)


@functools.cache
def undisturbed() -> Trained:
    with tempfile.TemporaryDirectory() as folder:
        return trained(Jobs(Path(folder), "undisturbed"), 1)


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("workers", [2, 3])
def test_the_bits_are_those_of_one_worker(jobs, workers):
    assert trained(jobs, workers)[:3] == undisturbed()[:3]


# After an update, between two, and between two of which one comes in the next epoch.
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("step", [4, 6, 10])
@pytest.mark.parametrize("stays", ["--in-place", "--no-in-place"])
def test_a_death_loses_no_step(jobs, step, stays):
    found = trained(jobs, 2, stays, "--fresh", DIES_AT=str(step))
    (recovered,) = found.of("recovered")
    assert recovered["in_place"] == (stays == "--in-place")
    assert (recovered["step"], recovered["lost_steps"]) == (step, 0)
    assert found[:3] == undisturbed()[:3]


@pytest.mark.timeout(3 * SECONDS)
def test_what_a_checkpoint_has_accumulated_is_gone_on_with(jobs):
    every = ("--checkpoint-every", 7)
    options = (*OPTIONS, *every, "--max-restarts", 0)
    newest = jobs.directory / "run/checkpoints/ckpt-14"  # two steps after an update
    env = {"DIES_AT": "17", "DIES_AFTER": str(newest)}
    died = jobs.run("-n", 2, *options, SCRIPT, "accumulating", env=env)
    assert died.returncode != 0 and newest.exists()
    found = trained(jobs, 3, *every)
    assert (found.weights, found.optimizer) == (undisturbed().weights, undisturbed().optimizer)
    assert "from the last checkpoint here, of step 14;" in found.said, found.said
    assert "reached step 17: 3 steps are done again" in found.said, found.said
