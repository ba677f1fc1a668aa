"""The host collective where it waits, and what a step costs in calls."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, environment


@pytest.mark.timeout(120)
def test_a_late_worker_is_waited_for_a_stopped_one_is_not(tmp_path: Path) -> None:
    job = subprocess.run(
        [TFRUN, "-n", "2", "--run-dir", str(tmp_path), str(SCRIPTS / "host_waits.py")],
        env=environment({"TFRUN_COMMUNICATION": "host"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert job.returncode == 0, job.stdout
    assert "resumed at step 6 " in job.stdout and "1 restart" in job.stdout
    # A guard against what grows unseen: in each step one collective of one sum for the gradients
    # and all that goes with them, one for the number of samples where they may differ, and one by
    # which TensorFlow's iterators agree on whether there is a batch.
    (line,) = [line for line in job.stdout.splitlines() if "COUNTS" in line]
    collectives, sums, copied, calls = json.loads(line.partition("COUNTS ")[2])
    assert line.startswith("ROUND 1 ")
    assert (collectives, sums) == (3, 3)
    parameters = 8 * 64 + 64 + 4 * 64 + 64 + 1
    assert 4 * parameters <= copied < 4 * parameters + 30 * 64  # and what aligns them
    assert calls <= 71  # of tfrun's own Python functions, in the thread of `fit`
