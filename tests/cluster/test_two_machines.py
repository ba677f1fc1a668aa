"""The newest state is on one machine only, and the other one gets it: bit for bit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from workers import SCRIPTS, shown_by


def run(folder: Path, fault: str) -> tuple[str, list[dict]]:
    """A job of one worker on each of two "machines", which share no memory; the terminal."""
    folder.mkdir()
    shown = shown_by(
        [sys.executable, SCRIPTS / "two_agents.py", "2", SCRIPTS / "recovery_small.py"],
        {"FAULT": fault},
        cwd=folder,
        timeout=100,
    )
    events = (folder / "run" / "events.jsonl").read_text().splitlines()
    return shown, [json.loads(line) for line in events]


def weights(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("WEIGHTS")]
    return line


def test_a_machine_that_lacks_the_state_gets_it(tmp_path: Path) -> None:
    wanted, _ = run(tmp_path / "undisturbed", "")
    shown, events = run(tmp_path / "killed", "kill")  # the chief, with all that its machine knew
    assert "resumed at step 61 with 2 workers" in shown
    assert weights(shown) == weights(wanted)
    reports = [event for event in events if event["event"] == "worker_report"]
    kept = {
        event["task"]
        for event in reports
        if event["report"]["kind"] == "snapshot" and event["report"]["key"] == [0, 1, 21]
    }
    assert kept == {"worker:1"}
    resumed = {event["task"] for event in reports if event["report"]["kind"] == "resumed"}
    assert resumed == {"worker:0", "worker:1"}
