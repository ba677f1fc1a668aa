"""The host collective where it waits, and what a step costs in calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by


def _check_costs_of_a_step(shown: str, *, round: int, most: int = 73) -> None:
    """A guard against what grows unseen.

    In each step one collective of one sum for the gradients and all that goes with them, one for
    the number of samples where they may differ, and one by which TensorFlow's iterators agree on
    whether there is a batch.
    """
    (line,) = [line for line in shown.splitlines() if "COUNTS" in line]
    collectives, sums, copied, calls = json.loads(line.partition("COUNTS ")[2])
    assert line.startswith(f"ROUND {round} ")
    assert (collectives, sums) == (3, 3)
    parameters = 8 * 64 + 64 + 4 * 64 + 64 + 1
    assert 4 * parameters <= copied < 4 * parameters + 30 * 64  # and what aligns them
    # Of tfrun's own Python functions in the thread of `fit`, but for the collective's own. One is
    # for each call of a `tf.function`: it may be a loop's, whose replicas take turns.
    assert calls <= most


@pytest.mark.timeout(120)
def test_a_step_of_workers_that_may_stay_costs_as_much(tmp_path: Path) -> None:
    shown = shown_by(
        [TFRUN, "-n", "2", "--in-place", "--run-dir", str(tmp_path)]
        + [str(SCRIPTS / "host_waits.py")],
        {"TFRUN_COMMUNICATION": "host", "QUIET": "1"},
        timeout=100,
    )
    # The logs of a worker that may hold several replicas are summed in this thread; and it asks
    # whether the script has found out where it stands.
    _check_costs_of_a_step(shown, round=0, most=90)


@pytest.mark.timeout(120)
def test_a_late_worker_is_waited_for_a_stopped_one_is_not(tmp_path: Path) -> None:
    shown = shown_by(
        [TFRUN, "-n", "2", "--no-in-place", "--run-dir", str(tmp_path)]
        + [str(SCRIPTS / "host_waits.py")],
        {"TFRUN_COMMUNICATION": "host"},
        timeout=100,
    )
    assert "resumed at step 6 " in shown and "1 restart" in shown
    _check_costs_of_a_step(shown, round=1)
    # Batches of an endless pipeline are full: nobody asks, and the bits are the same as if all did.
    assert "ENDLESS 1 less, same bits True" in shown
