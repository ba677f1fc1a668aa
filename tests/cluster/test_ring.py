"""TensorFlow's ring under everything that trains: same numbers, same recovery.

All other tests go through the host collective, which `--communication auto` takes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_workers import largest_difference
from test_engine_features import TOLERANCE
from test_engine_loops import IN_SYNC, SAME_AS_ONE
from test_recovery import KILLS, run, undisturbed
from workers import SCRIPTS, TFRUN, results_of, shown_by

RING = {"TFRUN_COMMUNICATION": "ring"}
# What stays in a machine's memory goes the same way, and is not rounded.
COMPRESSED = {"TFRUN_COMMUNICATION": "host", "TFRUN_COMPRESS": "bf16"}
# One of each way in which the engine reduces, gathers or broadcasts.
FEATURES = [
    "evaluate_and_predict",
    "mixed_bfloat16",
    "embedding",
    "batch_norm_synchronized",
    "run_eagerly",
]


def loops(workers: int) -> list[dict]:
    return results_of("engine_loops.py", workers, timeout=150, **(RING if workers > 1 else {}))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", [*SAME_AS_ONE, *IN_SYNC])
def test_loops_on_three_workers(case: str) -> None:
    mine, *others = [worker[case] for worker in loops(3)]
    assert [largest_difference(mine, other) for other in others] == [0.0, 0.0]
    if case in SAME_AS_ONE:
        assert largest_difference(loops(1)[0][case], mine) < 1e-5


def features(workers: int, **way: str) -> list[dict]:
    cases = " ".join(FEATURES)
    return results_of("engine_features.py", workers, timeout=300, TEST_CASES=cases, **way)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", [RING, pytest.param(COMPRESSED, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("feature", FEATURES)
def test_features_on_two_workers(feature: str, way: dict[str, str]) -> None:
    one = features(1)[0][feature]
    first, second = (worker[feature] for worker in features(2, **way))
    assert first == second
    assert largest_difference(one, first) < TOLERANCE.get(feature, 1e-5)


@pytest.mark.timeout(200)
def test_workers_die_and_nothing_is_lost() -> None:
    # The sum of two is the same in either order, so the host collective gives the same bits.
    wanted = undisturbed("arrays")
    found, _, shown = run("arrays", KILLS["arrays"][0], RING)
    assert found["weights"] == wanted["weights"], shown
    assert found["iterations"] == 45
    assert "; resumed at step " in shown and "3 restarts" in shown
    assert "Traceback" not in shown and "PeerGone" not in shown


@pytest.mark.timeout(120)
def test_the_ring_works_after_nccl_has_failed(tmp_path: Path) -> None:
    command = [TFRUN, "-n", "2", "--log-all", "--communication", "nccl", "--run-dir", tmp_path]
    shown = shown_by([*command, SCRIPTS / "nccl_fails.py"], {}, timeout=100)
    assert "NCCL does not work on 1 of 2 workers; the job goes on with RING" in shown
    lines = [line.partition("WEIGHTS ")[2] for line in shown.splitlines() if "WEIGHTS " in line]
    assert len(lines) == 2 and len(set(lines)) == 1 and lines[0].endswith("[2.0, 3.0]"), shown
    assert "restarted" not in shown
