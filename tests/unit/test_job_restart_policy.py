"""The restart policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import PEER_ERRORS, Failure
from tfrun.job.reports import Error
from tfrun.job.restart_policy import Cause, Restarts, Stretch, cause_of


def failure(
    code: int | None = None, kind: str = "", platform: str = "TFRUN-401", *, memory: bool = False
) -> Failure:
    status = None if code is None else ExitStatus(code=code, out_of_memory=memory)
    error = Error(type=kind) if kind else None
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


LIMIT = 3
Failed = tuple[int, int]  # the steps where a round went on from, and that it came to


def survived(restarts: Restarts, *rounds: Failed, seconds: float = 5.0) -> int:
    """Returns how many of these failures, one after the other, are recovered from."""
    state: Restarts | None = restarts
    for number, (began, reached) in enumerate(rounds):
        assert state is not None
        state = state.after_failure(
            Stretch(began=(0, began), reached=(0, reached), seconds=seconds)
        )
        if state is None:
            return number
    return len(rounds)


def all_are(*rounds: Failed) -> bool:
    return survived(Restarts(limit=LIMIT), *rounds) == len(rounds)


def test_none_are_allowed() -> None:
    assert survived(Restarts(limit=0), (0, 100)) == 0


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param([(0, 0)] * 9, id="before the first step"),
        pytest.param([(0, 7)] * 9, id="nothing is ever kept"),
        pytest.param([(0, 7), *[(7, 7)] * 9], id="the survivors keep each step"),
        pytest.param([(0, 154), *[(150, 154)] * 9], id="all die, and a checkpoint is behind"),
        pytest.param([(0, 90), *[(90, 91)] * 9], id="one worker, and a snapshot is behind"),
    ],
)
def test_at_the_same_place_again_and_again(rounds: list[Failed]) -> None:
    """One more where the first of them has seen that a snapshot is followed by a step."""
    assert survived(Restarts(limit=LIMIT), *rounds) in (LIMIT, LIMIT + 1)


@pytest.mark.parametrize(
    "rounds",
    [
        # Both hosts crash at step 154; then one, after dozens of new steps each time.
        pytest.param([(0, 154), (30, 36), (36, 71), (71, 90), (90, 130)], id="a checkpoint"),
        pytest.param([(0, 154), (0, 36), (36, 71), (71, 90), (90, 130)], id="the beginning"),
        # With servers each failure is such a fall, to a newer checkpoint each time.
        pytest.param([(0, 154), (30, 36), (35, 71), (70, 90), (90, 99), (95, 120)], id="servers"),
        pytest.param([(n, n + 1) for n in range(100)], id="one step each time"),
        pytest.param([(0, 154), (30, 36), (36, 90), (30, 40), (40, 80)], id="twice to one state"),
        # A loop that saves each tenth step by itself, and dies between.
        pytest.param([(0, 10), (10, 20), (20, 40), (40, 50), (50, 60)], id="its own saves"),
    ],
)
def test_a_job_that_advances_goes_on(rounds: list[Failed]) -> None:
    assert all_are(*rounds)


def test_who_falls_back_to_one_state_for_ever_does_not_advance() -> None:
    """However many steps it makes each time, and whatever is kept on the way."""
    rounds = [(0, 60), *[(60, 80), (80, 154)] * 50]
    assert survived(Restarts(limit=LIMIT), *rounds) < 20


def test_progress_resets_the_count_and_not_the_total() -> None:
    state = Restarts(limit=2)
    for began, reached in ((0, 5), (5, 5), (5, 6)):
        after = state.after_failure(Stretch(began=(0, began), reached=(0, reached)))
        assert after is not None
        state = after
    assert (state.total, state.in_a_row) == (3, 1)


def test_a_later_fit_is_progress_although_its_steps_begin_again() -> None:
    first = Stretch(began=(0, 0), reached=(0, 100))
    state = Restarts(limit=1).after_failure(first)
    assert state is not None
    assert state.after_failure(Stretch(began=(1, 0), reached=(1, 3))) is not None
    assert state.after_failure(first) is None


@pytest.mark.parametrize(
    ("seconds", "count"),
    [
        ([600, 200, 900, 100, 3000, 90], 6),  # killed from outside, at any time
        ([5, 20, 9, 3, 40], LIMIT),  # too short to have trained
        ([600, 610, 605, 590, 600], LIMIT),  # an error that comes after ten minutes each time
    ],
)
def test_a_loop_that_nobody_can_look_into(seconds: list[float], count: int) -> None:
    state: Restarts | None = Restarts(limit=LIMIT)
    recovered = 0
    for long in seconds:
        assert state is not None
        state = state.after_failure(Stretch(seconds=long))
        if state is None:
            break
        recovered += 1
    assert recovered == count


def test_a_training_that_is_seen_is_not_judged_by_its_time() -> None:
    state: Restarts | None = Restarts(limit=1).after_failure(Stretch(began=(0, 0), reached=(0, 5)))
    assert state is not None
    assert state.after_failure(Stretch(seconds=500.0)) is None


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=400),
)
def test_a_loop_always_ends(limit: int, rounds: list[tuple[int, int]]) -> None:
    """Going back and forth is no progress: four steps allow no more than so many restarts."""
    count = survived(Restarts(limit=limit), *((min(r), max(r)) for r in rounds))
    assert count <= 16 * (limit + 1) ** 2
