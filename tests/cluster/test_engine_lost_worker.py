"""What the others hold when a worker is lost in the middle of a step."""

from __future__ import annotations

import pytest
from forked_workers import run_workers


@pytest.mark.parametrize(
    ("signal", "seed", "seconds"),
    [
        ("SIGKILL", 0, 7.0),
        # Another place in the step; with the third seed it is one of three workers.
        pytest.param("SIGKILL", 1, 7.0, marks=pytest.mark.thorough),
        ("SIGKILL", 2, 7.0),
        ("SIGSTOP", 0, 8.0),
    ],
)
def test_survivors_hold_the_last_whole_step(signal: str, seed: int, seconds: float) -> None:
    """Weights, momenta and the step counter are all of one step; the loss is noticed soon.

    TensorFlow alone needs 8 to 15 seconds to notice a stopped worker. How much sooner it is on a
    quiet machine, bench/recovery.py says.
    """
    env = {"TEST_SIGNAL": signal, "TEST_SEED": str(seed)}
    workers = 3 if seed == 2 else 2
    for survivor in run_workers("engine_lost_worker.py", workers, env=env, lost=workers - 1)[:-1]:
        assert survivor["error"] == "UnavailableError"
        assert survivor["seconds to notice"] < seconds
        assert survivor["steps"] >= 1
        assert all(survivor["weights"]), survivor
        assert all(survivor["momenta"]), survivor
