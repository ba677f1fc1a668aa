"""Machines crash and come back: the job shrinks, waits, grows, and its numbers stay the same."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workers import SCRIPTS, TFRUN, environment

from tfrun.data.ledger_check import verify

SCRIPT = SCRIPTS / "elastic_train.py"
STEPS = 4 * 42


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a job has left, and said."""

    weights: list[np.ndarray]
    history: dict[str, list[float]]
    workers: int
    shown: str
    events: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


def train(command: list[object], **env: str) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.run(
            [*map(str, command), str(SCRIPT)],
            cwd=folder,
            env=environment({"TFRUN_LEDGER": "1", **env}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
            check=False,
        )
        assert job.returncode == 0, job.stdout
        reports = verify(Path(folder, "run"))
        # What a worker noted last may be lost with it: a step of each round that was cut off.
        assert [report.epoch for report in reports] == [0, 1, 2, 3]
        assert not any(report.duplicates for report in reports), reports
        cut_off = len(env.get("FAULTS", "").split()) + len(env.get("WAITS", "").split())
        assert sum(len(report.missing) for report in reports) <= 24 * cut_off, reports
        arrays = np.load(Path(folder, "weights.npz"))
        found = json.loads(Path(folder, "found.json").read_text())
        text = Path(folder, "run", "events.jsonl").read_text()
        return Result(
            **found,
            weights=[arrays[name] for name in arrays.files],
            shown=job.stdout,
            events=[json.loads(line) for line in text.splitlines()],
        )


def elastic(workers: str, machines: int, **env: str) -> Result:
    return train([sys.executable, SCRIPTS / "elastic_agents.py", workers, machines], **env)


@functools.cache
def undisturbed(loop: str = "fit") -> Result:
    return train([TFRUN, "-n", "2", "--run-dir", "run"], LOOP=loop)


def assert_close(found: Result, wanted: Result) -> None:
    assert found.weights[-1].shape == wanted.weights[-1].shape
    for one, other in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for name, values in wanted.history.items():
        assert found.history[name] == pytest.approx(values, rel=1e-5), name


@pytest.mark.timeout(320)
def test_a_job_shrinks_and_grows_on_one_loss_curve() -> None:
    """First a worker's machine, later the chief's; each comes back while the others train."""
    found = elastic("2:3", 3, FAULTS="0:1:20 2:0:70", WAITS="1:40:regroup:1 3:90:regroup:2")
    assert found.workers == 3
    assert_close(found, undisturbed())
    sizes = [(e["before"], e["workers"], e["without"], e["joined"]) for e in found.of("resized")]
    assert sizes == [
        *((3, 2, ["b"], []), (2, 3, [], ["b"])),
        *((3, 2, ["a"], []), (2, 3, [], ["a"])),
    ]
    assert [event["restarts"] for event in found.of("recovered")] == [1, 2]
    assert [event["lost_steps"] for event in found.of("grown")] == [0, 0]
    assert [event["step"] for event in found.of("grown")] == pytest.approx([41, 91], abs=1)
    assert len(found.of("failure")) == 2
    lines = [line for line in found.shown.splitlines() if line.startswith("tfrun: ")]
    assert [line for line in lines if "the agent b was lost: " in line and "with 2 workers" in line]
    assert [line for line in lines if line.startswith("tfrun: b joined; resumed at step 4")]
    assert [line for line in lines if line.startswith("tfrun: a joined; resumed at step 9")]
    assert any("2 restarts" in line for line in lines)
    assert "Traceback" not in found.shown and "Unavailable" not in found.shown


@pytest.mark.timeout(320)
def test_a_job_that_needs_the_machine_waits_for_it_and_goes_on_bit_for_bit() -> None:
    found, wanted = elastic("2", 2, FAULTS="0:1:50"), undisturbed()
    for one, other in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    (waiting,) = found.of("waiting")
    assert waiting["agents"] == ["b"] and waiting["seconds"] == 600
    assert not found.of("resized")
    (recovered,) = found.of("recovered")
    assert recovered["step"] == pytest.approx(50, abs=1) and recovered["lost_steps"] == 0
    assert "; waiting for b, at most 600 s" in found.shown


@pytest.mark.timeout(320)
def test_a_custom_loop_grows_from_one_worker() -> None:
    found = elastic("1:2", 2, LOOP="steps", FAULTS="0:1:20", WAITS="1:40:regroup:1")
    assert found.workers == 2
    assert_close(found, undisturbed("steps"))
    assert [e["workers"] for e in found.of("resized")] == [1, 2]
    (grown,) = found.of("grown")
    assert grown["lost_steps"] == 0
