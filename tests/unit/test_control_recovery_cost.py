"""What a failure has cost, and what a person is told of it: from reports to one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import Round
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import (
    CheckpointRestored,
    CheckpointSaved,
    EndedAt,
    FirstStep,
    Report,
    Resumed,
    SnapshotTaken,
)
from tfrun.job.restart_policy import Reached, Restarts


@pytest.mark.parametrize(
    ("died", "went_on", "lost"),
    [
        (None, None, 0),
        (None, (0, 37), 0),
        ((0, 155), (0, 155), 0),
        ((0, 155), (0, 37), 118),
        ((0, 155), None, 155),
        ((0, 36), (0, 37), 0),  # the survivors' state is newer than what anybody had told
        ((1, 160), (0, 150), 10),  # the second `fit` of one model
        ((1, 20), (0, 80), 20),  # another model, and the one before begins its end again
        ((0, 80), (1, 80), 0),  # it died when it was done
        ((1, 3), (1, 0), 3),
    ],
)
def test_lost_steps(died: Reached | None, went_on: Reached | None, lost: int) -> None:
    state = Recovery(restarts=Restarts(), died_at=died, began=went_on)
    assert state.lost_steps == lost


KILLED = "worker 1 killed by SIGKILL"


@pytest.mark.parametrize(
    ("died", "went_on", "how", "said"),
    [
        (155, 155, {}, f"{KILLED} at step 155; resumed at step 155 with 2 workers after 1.0 s"),
        (
            *(155, 37, {}),
            f"{KILLED} at step 155; resumed at step 37 with 2 workers, and does 118 steps again, "
            "after 1.0 s",
        ),
        (
            *(38, 37, {}),
            f"{KILLED} at step 38; resumed at step 37 with 2 workers, and does 1 step again, "
            "after 1.0 s",
        ),
        # What its machine kept is newer than what anybody had told.
        (31, 37, {}, f"{KILLED} at step 37; resumed at step 37 with 2 workers after 1.0 s"),
        (None, 37, {}, f"{KILLED}; resumed at step 37 with 2 workers after 1.0 s"),
        (
            *(None, None, {"is_restored": False}),
            f"{KILLED}; restarted from the beginning with 2 workers after 1.0 s",
        ),
        (
            *(57, None, {"is_restored": False}),
            f"{KILLED} at step 57; restarted from the beginning with 2 workers, and does 57 steps "
            "again, after 1.0 s",
        ),
        (
            # The script loads a model that has been trained for 1,000 steps.
            *(1057, 1000, {"is_restored": False}),
            f"{KILLED} at step 1,057; restarted from the beginning with 2 workers, and does 57 "
            "steps again, after 1.0 s",
        ),
        (90, 90, {"is_failure": False}, f"{KILLED}; resumed at step 90 with 2 workers after 1.0 s"),
    ],
)
def test_the_sentence(
    died: int | None, went_on: int | None, how: dict[str, bool], said: str
) -> None:
    died_at, place = (None if step is None else (0, step) for step in (died, went_on))
    grown = not how.get("is_failure", True)
    state = Recovery(restarts=Restarts(), how=(KILLED,), died_at=died_at, grown=grown)
    is_restored = how.get("is_restored", True)
    state = replace(state, resumed=place) if is_restored else replace(state, began=place)
    assert state.sentence(2, 1.0) == said


def test_nothing_is_said_of_nothing() -> None:
    state = Recovery(restarts=Restarts(), died_at=(0, 5), resumed=(0, 5))
    assert state.sentence(2, 1.0) == ""


# --- from what workers report -------------------------------------------------------------------


def first(step: int, call: int = 0) -> FirstStep:
    return FirstStep(key=[call, 0, step], step=step)


def snapshot(step: int, call: int = 0) -> SnapshotTaken:
    return SnapshotTaken(key=[call, 0, step], step=step)


def left(step: int, call: int) -> SnapshotTaken:
    """By the training before that call, whose steps these are."""
    return SnapshotTaken(key=[call, 0, 0], step=step)


def resumed(step: int, call: int = 0) -> Resumed:
    return Resumed(key=[call, 0, step], step=step)


def job(*rounds: list[Report | int]) -> Recovery:
    """What is remembered in the last of these rounds; a number is what is told once a second."""
    state = Recovery(restarts=Restarts(limit=99)).noticed(0.0)
    killed = Failure(task="worker:1", time=1.0, status=ExitStatus(code=-9))
    for number, reports in enumerate(rounds):
        for report in reports:
            state = state.reported(EndedAt(step=report) if isinstance(report, int) else report)
            if isinstance(report, FirstStep):
                state = state.mended if number < len(rounds) - 1 else state
        if number < len(rounds) - 1:
            after = state.after(Round(number=number, tasks=(), failures=(killed,)))
            assert after is not None
            state = after
    return state


@pytest.mark.parametrize(
    ("rounds", "died", "lost"),
    [
        ([[first(1), snapshot(155)], [resumed(155), first(156)]], 155, 0),
        # Both hosts crash at 155, and one at 37 after the fall to a checkpoint.
        ([[first(1), 154, 155], [resumed(30), first(31)]], 155, 125),
        (
            [
                [first(1), 155],
                [resumed(30), first(31), snapshot(37)],
                [resumed(37), first(38)],
            ],
            *(37, 0),
        ),
        # It dies again before a new step has followed: what was lost then is lost still.
        ([[first(1), 155], [resumed(30)], [resumed(30), first(31)]], 155, 125),
        ([[first(1), 57], [first(1)]], 57, 57),
        ([[first(1001), 1057], [first(1001)]], 1057, 57),
        ([[], [first(1)]], None, 0),
        # In the second `fit`, of another model.
        ([[first(1), snapshot(60, 1), first(1, 1), 20], [resumed(0, 1), first(1, 1)]], 20, 20),
        ([[first(1), snapshot(60, 1)], [resumed(60, 1)]], 60, 0),
        # What the first one has left is the second one's beginning; which dies in its first step.
        ([[first(1), left(60, 1), 1], [resumed(1, 1), first(2, 1)]], 60, 0),
        ([[first(1), left(60, 1), first(1, 1), 20], [resumed(0, 1), first(1, 1)]], 20, 20),
    ],
)
def test_where_a_job_died_is_where_its_last_round_was(
    rounds: list[list[Report | int]], died: int | None, lost: int
) -> None:
    state = job(*rounds)
    assert (state.died_at and state.died_at[1], state.lost_steps) == (died, lost)
    assert state.record(1.0)["lost_steps"] == lost


def test_a_loop_that_saves_by_itself_goes_on_where_it_has_restored() -> None:
    state = job([CheckpointSaved(step=50)], [CheckpointRestored(step=50)])
    assert not state.catches_up  # what it prints is news: nobody tells when it is new
    assert state.saves_itself and state.died_at is None  # nobody knows how far after its last save
    assert (state.resumed, state.began, state.here) == ((0, 50), (0, 50), (0, 50))
    assert state.sentence(2, 1.0) == (
        "worker 1 killed by SIGKILL; resumed at step 50 with 2 workers after 1.0 s"
    )
