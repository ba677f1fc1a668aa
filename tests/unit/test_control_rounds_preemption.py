"""A round whose machines are wanted back: it saves what has been trained, and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.control.round_terms import (
    Action,
    AgentJoined,
    AgentLost,
    AgentPrepared,
    ChiefResumed,
    Event,
    GraceOver,
    Interrupt,
    JobNotSaved,
    JobSaved,
    LeaveTasks,
    PlannedTask,
    Preempt,
    PrepareAgents,
    Round,
    SaveTasks,
    SetGrace,
    StartTasks,
    State,
    StopTasks,
    TaskDone,
    TaskExited,
    TaskRaised,
)
from tfrun.control.rounds import begin, step
from tfrun.job.exits import ExitStatus
from tfrun.job.failure import Failure

TASKS = (PlannedTask(name="worker:0", agent="a"), PlannedTask(name="worker:1", agent="b"))
JOINED = (AgentJoined(agent="a"), AgentJoined(agent="b"))
PREPARED = (AgentPrepared(agent="a", ports=(1,)), AgentPrepared(agent="b", ports=(2,)))
RUNNING = (*JOINED, *PREPARED)
PREEMPT, SAVED = Preempt(), JobSaved(step=7)
GRACE = SetGrace(seconds=Round(number=0, tasks=()).timeouts.preempt_grace)
KILL = StopTasks(signal="SIGKILL", grace=0)
DEAD = TaskExited(task="worker:1", time=1.0, status=ExitStatus(code=-9))
LEFT = TaskExited(task="worker:0", time=2.0, status=ExitStatus(code=1))
PEER = TaskRaised(task="worker:0", time=1.5, error={"type": "UnavailableError"})
LOST = AgentLost(agent="b", failure=Failure(task="b", time=1.0, code="TFRUN-301"), spare=False)


def walk(
    *events: Event, round: Round | None = None, recovers: bool = True
) -> tuple[Round, tuple[Action, ...]]:
    """Returns the round after the events, and the last one's actions."""
    actions: tuple[Action, ...] = ()
    round = round or Round(number=0, tasks=TASKS, recovers=recovers)
    for event in events:
        round, actions = step(round, event)
    return round, actions


def later(*, resumes: bool, preempting: bool = False) -> Round:
    """The second round, ready to begin."""
    return Round(number=1, tasks=TASKS, recovers=True, resumes=resumes, preempting=preempting)


@pytest.mark.parametrize("before", [(), JOINED[:1], JOINED, (*JOINED, PREPARED[0])])
def test_before_anything_has_run_there_is_nothing_to_save(before: tuple[Event, ...]) -> None:
    round, _ = walk(*before, PREEMPT)
    assert (round.state, round.preempted, round.recoverable) == (State.ENDED, True, False)


def test_a_running_round_saves_first_and_then_ends() -> None:
    round, actions = walk(*RUNNING, PREEMPT)
    assert (round.state, round.preempting) == (State.RUNNING, True)
    assert actions == (SaveTasks(), GRACE)
    round, actions = step(round, SAVED)
    assert (round.state, round.preempted, round.saved_step) == (State.STOPPING, True, 7)
    assert actions[0] == KILL


def test_a_script_without_a_training_of_ours_gets_time_to_save_its_own() -> None:
    round, actions = walk(*RUNNING, PREEMPT, JobSaved())
    assert (round.state, round.preempted, round.saved_step) == (State.STOPPING, True, None)
    assert actions[0] == StopTasks(signal="SIGTERM", grace=round.timeouts.preempt_grace)


@pytest.mark.parametrize("before", [RUNNING, (*RUNNING, DEAD)])
def test_the_same_wish_from_another_process_changes_nothing(before: tuple[Event, ...]) -> None:
    round, _ = walk(*before, PREEMPT)
    assert step(round, PREEMPT) == (round, ())


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_who_insists_does_not_wait_for_the_save(signal: str) -> None:
    round, _ = walk(*RUNNING, PREEMPT, Interrupt(signal=signal))
    assert (round.state, round.preempted) == (State.STOPPING, False)
    assert round.interrupted == signal


@pytest.mark.parametrize("event", [SAVED, JobNotSaved(reason="full"), GraceOver()])
def test_a_save_that_nobody_asked_for_changes_nothing(event: Event) -> None:
    round, _ = walk(*RUNNING)
    assert step(round, event) == (round, ())


def test_what_cannot_be_saved_is_tried_again_until_the_time_is_over() -> None:
    round, actions = walk(*RUNNING, PREEMPT, JobNotSaved(reason="the disk is full"))
    assert (round.state, actions) == (State.RUNNING, ())
    assert step(round, SAVED)[0].preempted
    round, actions = step(round, GraceOver())
    assert (round.state, round.preempted, round.interrupted) == (State.STOPPING, False, "SIGTERM")
    assert round.unsaved == "the disk is full"
    assert isinstance(actions[0], StopTasks) and actions[0].signal == "SIGTERM"


def test_who_has_no_place_to_save_it_is_not_waited_for() -> None:
    reason = "checkpoints are off"
    round, _ = walk(*RUNNING, PREEMPT, JobNotSaved(reason=reason, for_good=True))
    assert (round.state, round.preempted, round.unsaved) == (State.STOPPING, False, reason)


def test_without_a_word_from_the_chief_it_was_too_slow() -> None:
    round, _ = walk(*RUNNING, PREEMPT, GraceOver())
    assert round.unsaved == "it took more than 25 s"


def test_when_all_is_done_the_end_is_not_hurried() -> None:
    events = [TaskDone(task=task.name) for task in TASKS]
    round, _ = walk(*RUNNING, *events)
    assert step(round, PREEMPT) == (round, ())


# --- while workers die ----------------------------------------------------------------------


def test_workers_that_lost_a_peer_meanwhile_leave_and_the_next_round_saves() -> None:
    for events in ((PREEMPT, DEAD), (DEAD, PREEMPT)):
        round, actions = walk(*RUNNING, *events)
        assert round.state is State.LEAVING and round.preempting
        round, _ = walk(PEER, LEFT, round=round)
        assert (round.state, round.recoverable) == (State.ENDED, True)
    assert actions == (SaveTasks(), GRACE)  # the chief may save before it leaves


def test_the_chief_saves_on_its_way_out_of_a_round() -> None:
    round, actions = walk(*RUNNING, PREEMPT, DEAD, PEER, SAVED)
    assert (round.state, round.preempted) == (State.STOPPING, True)
    assert actions[0] == KILL


@pytest.mark.parametrize("recovers", [True, False])
def test_the_chief_is_waited_for_though_there_can_be_no_next_round(*, recovers: bool) -> None:
    round, actions = walk(*RUNNING, PREEMPT, LOST, recovers=recovers)
    assert (round.state, actions[0]) == (State.LEAVING, LeaveTasks())
    assert step(round, SAVED)[0].preempted
    round, _ = step(round, LEFT)
    assert (round.state, round.recoverable, round.preempted) == (State.ENDED, False, False)


def test_the_scripts_own_error_ends_the_job_as_always() -> None:
    error = TaskRaised(task="worker:0", time=1.0, error={"type": "ValueError"})
    round, actions = walk(*RUNNING, PREEMPT, error)
    assert (round.state, round.preempted) == (State.STOPPING, False)
    assert actions[0] == StopTasks(signal="SIGTERM", grace=round.timeouts.stop_grace)


def test_failures_that_were_being_mended_are_not_what_ends_the_job() -> None:
    round, _ = walk(*RUNNING, DEAD, PREEMPT, GraceOver())
    assert (round.state, round.failures, round.preempted) == (State.STOPPING, (), False)


# --- the round after ------------------------------------------------------------------------


def test_a_round_that_shall_save_begins_only_if_there_is_something_in_memory() -> None:
    round, actions = begin(later(resumes=True, preempting=True), frozenset("ab"))
    assert (round.state, actions) == (State.PREPARING, (PrepareAgents(),))
    round, _ = begin(later(resumes=False, preempting=True), frozenset("ab"))
    assert (round.state, round.preempted, round.recoverable) == (State.ENDED, True, False)


def test_a_later_round_saves_once_its_chief_has_the_state() -> None:
    start, _ = begin(later(resumes=True), frozenset("ab"))
    # Whenever the wish comes: before its scripts start, or before the chief has restored.
    early, actions = walk(PREEMPT, *PREPARED, round=start)
    assert (early.state, actions) == (State.RUNNING, (StartTasks(),))
    late, actions = walk(*PREPARED, PREEMPT, round=start)
    assert (late.state, actions) == (State.RUNNING, (GRACE,))
    for round in (early, late):
        round, actions = step(round, ChiefResumed())
        assert actions == (SaveTasks(),)
        assert step(round, ChiefResumed()) == (round, ())
    after, _ = walk(*PREPARED, ChiefResumed(), round=start)
    assert step(after, PREEMPT)[1] == (SaveTasks(), GRACE)


def test_a_later_round_with_nothing_in_memory_saves_at_once() -> None:
    start, _ = begin(later(resumes=False), frozenset("ab"))
    running, _ = walk(*PREPARED, round=start)
    assert step(running, PREEMPT)[1] == (SaveTasks(), GRACE)
    round = replace(start, preempting=True)
    assert walk(*PREPARED, round=round)[1] == (StartTasks(), SaveTasks())


def test_the_time_may_be_over_before_a_later_round_runs() -> None:
    start, _ = begin(later(resumes=True, preempting=True), frozenset("ab"))
    round, _ = step(start, GraceOver())
    assert (round.state, round.preempted, round.interrupted) == (State.ENDED, False, "SIGTERM")
