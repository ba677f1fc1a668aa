"""What a script may do before its first model, where TensorFlow's cluster is needed and where not.

Where it is, TensorFlow can join it before its first tensor only: see `multi_worker.meet`.
"""

from __future__ import annotations

import pytest
from forked_workers import largest_difference
from workers import results_of

TIMEOUT = 120
NO_EFFECT = "communication_options has no effect: "


def workers(n: int, kind: str, way: str) -> list[dict]:
    ways = {"TFRUN_COMMUNICATION": way} if n > 1 else {}
    return results_of("adopted_late.py", n, timeout=TIMEOUT, KIND=kind, **ways)


@pytest.mark.timeout(3 * TIMEOUT)
@pytest.mark.parametrize("way", ["host", "ring"])
@pytest.mark.parametrize("kind", ["none", "own", "model first"])
def test_what_comes_before_the_first_model_changes_nothing(kind: str, way: str) -> None:
    (one,), two = workers(1, "none", ""), workers(2, kind, way)
    for worker in two:
        assert worker["replicas"] == 2 and worker["counted"] == 288
        assert worker["devices"] >= 2  # as the script has asked at its top
        assert largest_difference(worker["numbers"], one["numbers"]) < 1e-9
        assert abs(worker["predicted"] - one["predicted"]) < 1e-7
        assert worker["pack"] == {"none": None, "own": 5 << 20, "model first": 4 << 20}[kind]
        assert len(worker["said"]) == (kind == "model first")
        assert all(text.startswith(NO_EFFECT) for text in worker["said"])
