"""The restart policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.exits import ExitStatus
from tfrun.job.failure import PEER_ERRORS, Failure
from tfrun.job.restarts import Cause, Restarts, cause_of


def failure(
    code: int | None = None, kind: str = "", platform: str = "TFRUN-401", *, memory: bool = False
) -> Failure:
    status = None if code is None else ExitStatus(code=code, out_of_memory=memory)
    error = {"type": kind} if kind else {}
    return Failure(task="worker:1", time=0.0, status=status, error=error, code=platform)


@pytest.mark.parametrize(
    "one",
    [
        *(failure(-signal) for signal in (1, 6, 9, 11, 15)),
        *(failure(1, kind) for kind in sorted(PEER_ERRORS)),
        failure(kind="UnavailableError"),
        failure(-9, memory=True),
        failure(platform="TFRUN-301"),
        failure(platform="TFRUN-404"),
    ],
)
def test_what_another_round_may_not_meet(one: Failure) -> None:
    assert cause_of(one) is Cause.INFRASTRUCTURE


@pytest.mark.parametrize(
    "one",
    [
        *(failure(code) for code in (1, 2, 9, 137)),
        failure(1, "ValueError"),
        failure(kind="ValueError"),
        failure(7, "SystemExit"),
        failure(130, "KeyboardInterrupt"),
        failure(platform="TFRUN-402"),
        failure(platform="TFRUN-303"),
    ],
)
def test_what_every_round_would_meet(one: Failure) -> None:
    assert cause_of(one) is Cause.SCRIPT


def many(limit: int, *reached: int) -> Restarts | None:
    """Returns the policy after failures at these steps."""
    state: Restarts | None = Restarts(limit=limit)
    for step in reached:
        assert state is not None
        state = state.after_failure((0, step))
    return state


def test_none_are_allowed() -> None:
    assert many(0, 100) is None


def test_the_same_step_again_and_again() -> None:
    assert many(3, 0, 0, 0) == Restarts(limit=3, total=3, in_a_row=3)
    assert many(3, 0, 0, 0, 0) is None
    assert many(3, 7, 7, 7) is not None
    assert many(3, 7, 7, 7, 7) is None


def test_progress_resets_the_count_and_not_the_total() -> None:
    assert many(2, 5, 5, 6) == Restarts(limit=2, total=3, in_a_row=1, reached=(0, 6))


def test_a_later_fit_is_progress_although_its_steps_begin_again() -> None:
    state = Restarts(limit=1, total=1, in_a_row=1, reached=(0, 100))
    assert state.after_failure((1, 3)) is not None
    assert state.after_failure((0, 100)) is None


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=60))
def test_a_loop_always_ends(limit: int, steps: list[int]) -> None:
    """Going back and forth is no progress: four steps allow no more than this many restarts."""
    state = Restarts(limit=limit)
    for step in steps:
        after = state.after_failure((0, step))
        if after is None:
            return
        state = after
    assert state.total <= limit * 4
