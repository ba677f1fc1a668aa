"""Steps are told as they were made where one call makes several, and a resume makes the rest."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workers import SCRIPTS, TFRUN, shown_by

# The steps of each epoch, as plain Keras makes them, and of seven batches of ten.
TOLD = {
    "repeat": [9, 9],
    "generator": [9, 9],
    "one pass": [7],
    "unknown": [7, 7],
    "counted": [7, 7],
    "too short": [5, 5],
    "tfrun": [7, 7],
}


def run(folder: Path, workers: int, *arguments: str) -> tuple[dict[str, Any], list[dict]]:
    """What the script has found, and the job's events."""
    options = ("-n", str(workers), "--run-dir", folder / "run")
    command = [TFRUN, *options, SCRIPTS / "steps_made.py", folder / "out.json", *arguments]
    shown_by(command, {}, timeout=180)
    events = (folder / "run" / "events.jsonl").read_text().splitlines()
    return json.loads((folder / "out.json").read_text()), [json.loads(line) for line in events]


@functools.cache
def undisturbed(workers: int) -> tuple[dict[str, Any], list[dict]]:
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), workers)


def reports(events: list[dict], kind: str) -> list[dict]:
    found = [event["report"] for event in events if event["event"] == "worker_report"]
    return [report for report in found if report["kind"] == kind]


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_are_told_as_they_were_made(workers: int) -> None:
    found, events = undisturbed(workers)
    assert {name: case["steps"] for name, case in found.items()} == {
        name: sum(steps) for name, steps in TOLD.items()
    }
    epochs = reports(events, "epoch_end")
    assert [epoch["steps"] for epoch in epochs] == [n for steps in TOLD.values() for n in steps]
    assert [epoch["samples"] for epoch in epochs] == [10 * epoch["steps"] for epoch in epochs]
    ends = reports(events, "fit_end")
    assert [(end["steps"], end["samples"]) for end in ends] == [
        (sum(steps), 10 * sum(steps)) for steps in TOLD.values()
    ]
    rates = [end["samples_per_second"] * end["seconds"] for end in ends]
    np.testing.assert_allclose(rates, [end["samples"] for end in ends])
    last = [event for event in events if event["event"] == "progress"][-1]
    assert (last["epoch"], last["in_epoch"], last["step"]) == (1, 7, 14)


def test_a_death_within_an_execution_changes_no_number(tmp_path: Path) -> None:
    whole, _ = undisturbed(2)
    again, events = run(tmp_path, 2, "kill")
    resumed = {report["step"] for report in reports(events, "resumed")}
    assert len(resumed) == 3 and any(step % 3 for step in resumed), resumed
    for name, case in whole.items():
        assert again[name]["steps"] == case["steps"], name
        np.testing.assert_allclose(again[name]["weights"], case["weights"], rtol=1e-9, err_msg=name)
        # Metrics travel with the gradients as float32.
        np.testing.assert_allclose(again[name]["losses"], case["losses"], rtol=1e-6, err_msg=name)
