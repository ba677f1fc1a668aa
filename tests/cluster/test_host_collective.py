"""The host collective under everything that trains: same numbers, same recovery."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hand import largest_difference
from test_engine_features import TOLERANCE
from test_engine_features import results as features
from test_engine_loops import IN_SYNC, SAME_AS_ONE
from test_recovery import KILLS, run, undisturbed
from workers import SCRIPTS, TFRUN, environment, results_of

HOST = {"TFRUN_COMMUNICATION": "host"}
# What stays in a machine's memory goes the same way, and is not rounded.
COMPRESSED = {**HOST, "TFRUN_COMPRESS": "bf16"}
# One of each way in which the engine reduces, gathers or broadcasts.
FEATURES = [
    "evaluate_and_predict",
    "mixed_bfloat16",
    "embedding",
    "batch_norm_synchronized",
    "run_eagerly",
]


def loops(workers: int) -> list[dict]:
    return results_of("engine_loops.py", workers, timeout=150, **(HOST if workers > 1 else {}))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", [*SAME_AS_ONE, *IN_SYNC])
def test_loops_on_three_workers(case: str) -> None:
    mine, *others = [worker[case] for worker in loops(3)]
    assert [largest_difference(mine, other) for other in others] == [0.0, 0.0]
    if case in SAME_AS_ONE:
        assert largest_difference(loops(1)[0][case], mine) < 1e-5


@pytest.mark.timeout(400)
@pytest.mark.parametrize("feature", FEATURES)
def test_features_on_two_workers(feature: str) -> None:
    one = features(1)[0][feature]
    cases = {"TEST_CASES": " ".join(FEATURES)}
    two = results_of("engine_features.py", 2, timeout=300, **cases, **COMPRESSED)
    first, second = (worker[feature] for worker in two)
    assert first == second
    assert largest_difference(one, first) < TOLERANCE.get(feature, 1e-5)


@pytest.mark.timeout(200)
def test_workers_die_and_nothing_is_lost() -> None:
    # The sum of two is the same in either order, so TensorFlow's ring gives the same bits.
    wanted = undisturbed("arrays")
    found, _, shown = run("arrays", KILLS["arrays"][0], HOST)
    assert found["weights"] == wanted["weights"], shown
    assert found["iterations"] == 45
    assert "; resumed at step " in shown and "3 restarts" in shown
    assert "Traceback" not in shown and "PeerGone" not in shown


@pytest.mark.timeout(120)
def test_a_late_worker_is_waited_for_a_stopped_one_is_not(tmp_path: Path) -> None:
    job = subprocess.run(
        [TFRUN, "-n", "2", "--run-dir", str(tmp_path), str(SCRIPTS / "host_waits.py")],
        env=environment(HOST),
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
