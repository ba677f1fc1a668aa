"""Failures after failures: who advances goes on, who does not is ended; what is told is true."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from workers import SCRIPTS, TFRUN, shown_by


def run(
    folder: Path, script: str, *options: str, exit_code: int = 0, workers: int = 2, **env: str
) -> str:
    command = [TFRUN, "-n", str(workers), "--run-dir", "run", *options, str(SCRIPTS / script)]
    return shown_by(command, env, timeout=150, cwd=folder, exit_code=exit_code)


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "run" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_a_loop_with_checkpoints_of_its_own_advances(tmp_path: Path) -> None:
    """Its fourth kill ended it: nobody saw a step of it."""
    shown = run(tmp_path, "own_checkpoint.py", KILLS="17 25 38 44 52 69 -1")
    assert "STEPS 100 round 6" in shown
    assert [event["step"] for event in events(tmp_path, "recovered")] == [10, 20, 30, 40, 50, 60]


def test_a_loop_that_dies_at_one_place_is_ended_and_the_limit_is_named(tmp_path: Path) -> None:
    options = ("own_checkpoint.py", "--max-restarts", "2")
    shown = run(tmp_path, *options, exit_code=137, KILLS="25")
    assert "TFRUN-405" in shown
    words = " ".join(shown.replace("│", " ").split())
    assert "2 restarts in a row made no progress (--max-restarts 2)" in words
    assert len(events(tmp_path, "recovered")) == 2


def test_after_the_loss_of_all_memory_progress_counts_from_the_checkpoint(tmp_path: Path) -> None:
    """All die at 58, then one after some steps each time: the third of those ended the job."""
    options = ("--checkpoint-every", "35", "--snapshot-every", "0")
    shown = run(tmp_path, "falls_back.py", *options, KILLS="58: 38:1 42:1 45:1 49:1")
    assert "STEPS 60 round 5" in shown
    pattern = r"at step (\d+); resumed at step (\d+) with 2 workers(?:, and does (\d+))?"
    told = [tuple(int(n or 0) for n in found) for found in re.findall(pattern, shown)]
    assert told == [(58, 35, 23), *((step, step, 0) for step in (38, 42, 45, 49))]
    found = [(event["step"], event["lost_steps"]) for event in events(tmp_path, "recovered")]
    assert found == [(35, 23), (38, 0), (42, 0), (45, 0), (49, 0)]
