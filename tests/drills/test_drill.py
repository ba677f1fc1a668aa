"""`tfrun drill` on real jobs: the promise that is kept, the one that is broken, and the end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from conftest import THOROUGH, Jobs, wait_until

SCRIPTS = Path(__file__).parent / "scripts"
HITS = ["kill", "stop", *["chief", "two"] * THOROUGH]  # signals to workers
FAULTS = [*HITS, "preempt", "disk", "cut"]


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_promise_that_is_kept(jobs: Jobs) -> None:
    """Each fault gets a job of its own, and all are held against one that nothing disturbs."""
    options = ["--faults", ",".join(FAULTS), "--seed", "3", "--json", "found.json"]
    done = jobs.run("drill", *options, SCRIPTS / "honest.py", timeout=280)
    found = json.loads((jobs.directory / "found.json").read_text())
    assert found["workers"] == 2 and found["seed"] == 3 and "seed 3" in done.stderr
    rows = {row["fault"]: row for row in found["rows"]}
    assert list(rows) == FAULTS
    for fault in HITS:
        row = rows[fault]
        assert row["ok"] and row["hit"] == 1 and row["weights_equal"] is True, row
        assert row["steps_lost"] == 0 and row["steps_lost_exact"], row
        assert 0 <= row["noticed"] <= row["first_step"] < 15, row
        assert f"{fault} " in done.stdout
    preempt, disk, cut = rows["preempt"], rows["disk"], rows["cut"]
    assert preempt["ok"] and preempt["weights_equal"] is True, (preempt, done.stdout, done.stderr)
    assert preempt["steps_lost"] == 0
    assert 0 <= preempt["noticed"] < 15 and 0 < preempt["first_step"] < 30
    # One machine has nothing to cut; it says so, and is not ok.
    assert not cut["ok"] and "cut: skipped: needs at least two hosts" in done.stdout
    assert done.returncode == 1 and not found["ok"]
    if os.geteuid():
        assert "disk: skipped: needs root" in done.stdout and not disk["ok"]
        return
    assert disk["ok"] and disk["weights_equal"] is True, (disk, done.stdout, done.stderr)
    assert 0 <= disk["noticed"] < 15
    assert str(jobs.directory) not in Path("/proc/mounts").read_text()


@pytest.mark.slow
def test_a_promise_that_is_broken(jobs: Jobs) -> None:
    options = ["--faults", "kill", "--json", "found.json"]
    done = jobs.run("drill", *options, SCRIPTS / "drifts.py", timeout=170)
    assert done.returncode == 1, done.stdout + done.stderr
    (row,) = json.loads((jobs.directory / "found.json").read_text())["rows"]
    assert row["hit"] == 1 and not row["ok"]
    assert (row["weights_equal"], row["broken"]) == (False, ["other weights"])
    assert "kill: other weights" in done.stdout


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_drill_that_is_ended_leaves_nothing(jobs: Jobs, signum: int, code: int) -> None:
    drill = jobs.start("drill", "--run-dir", "drill", SCRIPTS / "honest.py", "2000")
    events = jobs.directory / "drill" / "undisturbed" / "events.jsonl"
    wait_until(lambda: events.exists() and "first_step" in events.read_text(), "a step", 60)
    drill.send_signal(signum)
    out, err = drill.communicate(timeout=20)
    assert drill.returncode == code, out + err
    assert "Traceback" not in err


def test_a_script_that_fails_by_itself(jobs: Jobs) -> None:
    script = jobs.script("raise SystemExit(7)\n")
    done = jobs.run("drill", "--run-dir", "drill", script)
    assert done.returncode == 1
    assert "TFRUN-401" in done.stderr and "ended with 7" in done.stderr
    again = jobs.run("drill", "--run-dir", "drill", script)
    assert again.returncode == 2 and "holds an earlier drill" in again.stderr


def test_a_script_without_steps(jobs: Jobs) -> None:
    done = jobs.run("drill", jobs.script("print('nothing to train')\n"))
    assert done.returncode == 2
    assert "makes no step" in done.stderr
