"""Machines crash and come back: the job shrinks, waits, grows, and its numbers stay the same."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workers import SCRIPTS, TFRUN, environment

from conftest import wait_until
from tfrun.data.ledger.proof import LedgerReport, examine

SCRIPT = SCRIPTS / "elastic_train.py"
STEPS = 4 * 42


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a job that has finished has left; `shown` and `events` also of the jobs before it."""

    weights: list[np.ndarray]
    history: dict[str, list[float]]
    workers: int
    shown: str
    events: list[dict[str, Any]]
    ledger: LedgerReport
    proof: str
    ends: list[str]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def lines(self) -> list[str]:
        return [line for line in self.shown.splitlines() if line.startswith("tfrun: ")]


def run(folder: str, command: list[object], sigterm_at: str = "", **env: str) -> tuple[int, str]:
    """Runs a job in a directory; returns its exit code and its terminal.

    Args:
      folder: the directory.
      command: without the script.
      sigterm_at: what the event log has to have for the launcher to get SIGTERM.
      **env: for the script.
    """
    log = Path(folder, "run", "events.jsonl")
    before = log.stat().st_size if log.exists() else 0
    with Path(folder, "shown").open("w+") as shown:
        job = subprocess.Popen(
            [*map(str, command), str(SCRIPT)],
            cwd=folder,
            env=environment({"TFRUN_LEDGER": "1", **env}),
            stdout=shown,
            stderr=subprocess.STDOUT,
        )
        try:
            if sigterm_at:
                wait_until(
                    lambda: log.exists() and sigterm_at in log.read_text()[before:], sigterm_at, 90
                )
                job.send_signal(signal.SIGTERM)
            code = job.wait(timeout=150)
        finally:
            job.kill()  # which ends all that it has started
            job.wait()
        shown.seek(0)
        return code, shown.read()


def train(command: list[object], *disturbed: dict[str, str], **env: str) -> Result:
    """Runs a job to its end; before that, in its run directory, one that ends with 75 for each."""
    with tempfile.TemporaryDirectory() as folder:
        shown = ""
        for expected, more in [*((75, one) for one in disturbed), (0, {})]:
            code, output = run(folder, command, **{**env, **more})
            assert code == expected, output
            assert "Traceback" not in output and "Unavailable" not in output, output
            shown += output
        proof = subprocess.run(
            [TFRUN, "ledger", "run"], cwd=folder, capture_output=True, text=True, check=False
        )
        assert proof.returncode == 0, proof.stdout + proof.stderr
        arrays = np.load(Path(folder, "weights.npz"))
        found = json.loads(Path(folder, "found.json").read_text())
        text = Path(folder, "run", "events.jsonl").read_text()
        ends = Path(folder, "run", "ends")
        result = Result(
            **found,
            weights=[arrays[name] for name in arrays.files],
            shown=shown,
            events=[json.loads(line) for line in text.splitlines()],
            ledger=examine(Path(folder, "run")),
            proof=proof.stdout,
            ends=ends.read_text().splitlines() if ends.exists() else [],
        )
        assert_each_sample_once(result.ledger)
        return result


def assert_each_sample_once(ledger: LedgerReport) -> None:
    assert [epoch.epoch for epoch in ledger.epochs] == [0, 1, 2, 3]
    for epoch in ledger.epochs:
        assert epoch.exact and epoch.complete, epoch
        assert (epoch.consumed, epoch.expected, epoch.steps) == (1001, 1001, 42)
    assert ledger.exact


def elastic(workers: str, machines: int, *disturbed: dict[str, str], **env: str) -> Result:
    command = [sys.executable, SCRIPTS / "elastic_agents.py", workers, machines]
    return train(command, *disturbed, **env)


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
    lines = found.lines
    assert [line for line in lines if "the agent b was lost: " in line and "with 2 workers" in line]
    assert [line for line in lines if line.startswith("tfrun: b joined; resumed at step 4")]
    assert [line for line in lines if line.startswith("tfrun: a joined; resumed at step 9")]
    assert any("2 restarts" in line for line in lines)
    worlds = [size for epoch in found.ledger.epochs for size in epoch.worlds]
    assert {2, 3} <= set(worlds), found.proof


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
    """And there it has both replicas on it, which take turns."""
    found = elastic("1:2", 2, LOOP="steps", FAULTS="0:1:20", WAITS="1:40:regroup:1")
    assert found.workers == 2
    assert_close(found, undisturbed("steps"))
    assert [e["workers"] for e in found.of("resized")] == [1, 2]
    assert not found.of("one_replica_each")
    (recovered,), (grown,) = map(found.of, ("recovered", "grown"))
    assert (recovered["restarts"], recovered["lost_steps"], grown["lost_steps"]) == (1, 0, 0)


@pytest.mark.timeout(320)
def test_one_machine_after_the_other_is_preempted_and_the_rest_goes_on() -> None:
    """First an agent is told so, then a worker on the chief's machine; nobody waits for them."""
    found = elastic(
        "1:3", 3, WANTED="0:1:20:agent 1:0:100:worker", WAITS="0:25:regroup:1 1:105:regroup:2"
    )
    assert found.workers == 1
    assert_close(found, undisturbed())
    assert [(e["agent"], e["task"]) for e in found.of("wanted_back")][:2] == [
        ("b", ""),
        ("a", "worker:0"),
    ]
    assert [(e["workers"], e["without"], e["joined"]) for e in found.of("resized")] == [
        (2, ["b"], []),
        (1, ["a"], []),
    ]
    left = found.of("machine_preempted")
    assert [(e["preempted"], e["lost_steps"], e["restarts"]) for e in left] == [
        (["b"], 0, 0),
        (["a"], 0, 0),
    ]
    assert [e["step"] for e in left] == pytest.approx([25, 105], abs=1)
    assert not found.of("failure") and not found.of("recovered")
    assert found.ends[:2] == ["b exit code 75", "a exit code 75"]
    assert [line for line in found.lines if "b is being preempted; resumed at step 2" in line]
    assert [line for line in found.lines if "with 1 worker after" in line and "a is being" in line]


@pytest.mark.timeout(320)
def test_who_validates_keeps_the_state_and_goes_when_it_has_to() -> None:
    """No step ends there, and no collective fails: neither for a machine nor for a dead worker."""
    found = elastic("1:3", 3, VALID="0:1:84:agent 1:1:126:worker", GRACE="8")
    assert_close(found, undisturbed())
    assert found.ends[0] == "b exit code 75"
    (left,), (dead,) = found.of("machine_preempted"), found.of("recovered")
    assert (left["step"], left["lost_steps"], left["preempted"]) == (84, 0, ["b"])
    assert (dead["step"], dead["lost_steps"], dead["restarts"]) == (126, 0, 1)
    assert [event["task"] for event in found.of("failure")] == ["worker:1"]
    (wanted,) = found.of("wanted_back")
    (let_go,) = found.of("let_go")
    assert let_go["time"] - wanted["time"] < 8


@pytest.mark.timeout(320)
def test_where_too_few_machines_would_be_left_all_is_saved() -> None:
    """Two of three within a moment: they ask for what one alone would not need."""
    found = elastic("2:3", 3, {"WANTED": "0:1:20:agent 0:2:20:agent"})
    assert found.workers == 3
    assert_close(found, undisturbed())
    assert not found.of("resized") and not found.of("machine_preempted")
    assert [line for line in found.lines if line.startswith("tfrun: preempted by SIGTERM after")]
    reports = [event["report"] for event in found.of("worker_report")]
    (step,) = [report["step"] for report in reports if report["kind"] == "job_saved"]
    assert 20 <= step <= 24


@pytest.mark.timeout(400)
def test_sigterm_where_no_worker_has_the_state_saves_it_from_memory() -> None:
    """While the job waits for a machine; and while a script takes too long to where it was."""
    slow = {"SLOW": "60", "GRACE": "4", "sigterm_at": '"number": 1, "state": "running"'}
    waits = {"FAULTS": "0:1:50", "sigterm_at": '"event": "waiting"'}
    found, wanted = elastic("2", 2, waits, {"DEATHS": "0:1:80", **slow}), undisturbed()
    for one, other in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    saved = [(e["step"], e["problem"]) for e in found.of("memory_saved")]
    assert saved == [(pytest.approx(50, abs=1), ""), (pytest.approx(80, abs=1), "")]
    lines = [line for line in found.lines if "preempted by SIGTERM" in line]
    for line, (step, _) in zip(lines, saved, strict=True):
        assert f"step {step} is saved in " in line
