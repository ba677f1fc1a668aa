"""A round whose machines are preempted: it saves what has been trained, and ends."""

from __future__ import annotations

import pytest
from control_rounds import (
    JOIN_A,
    JOIN_B,
    READY_A,
    READY_B,
    RUNNING,
    TWO,
    done,
    exited,
    job_not_saved,
    job_saved,
    kill,
    left,
    lost,
    memory_saved,
    raised,
    resumed,
)
from control_rounds import walk as walk_from

from tfrun.control.protocol import messages
from tfrun.control.protocol.messages import Leave, Save, SaveMemory, StopRound
from tfrun.control.rounds.model import (
    Action,
    ChangeMachines,
    Event,
    GraceOver,
    Interrupt,
    Preempt,
    Round,
    SetGrace,
    SetTimer,
    State,
    TimedOut,
)
from tfrun.control.rounds.state_machine import begin, step

PREEMPT, SAVED = Preempt(), job_saved(7)
GRACE = SetGrace(seconds=Round(number=0, tasks=()).timeouts.preempt_grace)
KILL = kill()
DEAD, LEFT = exited(1, -9), exited(0, 1)
PEER, LOST = left(0), lost("b")


def walk(
    *events: Event, round: Round | None = None, recovers: bool = True
) -> tuple[Round, tuple[Action, ...]]:
    """Returns the round after the events, and the last one's actions."""
    return walk_from(*events, tasks=TWO, round=round, recovers=recovers)


def later(*, resumes: bool, preempting: bool = False) -> Round:
    """The second round, ready to begin."""
    return Round(number=1, tasks=TWO, recovers=True, resumes=resumes, preempting=preempting)


@pytest.mark.parametrize("before", [(), (JOIN_A,), (JOIN_A, JOIN_B), RUNNING[:3]])
def test_before_anything_has_run_there_is_nothing_to_save(before: tuple[Event, ...]) -> None:
    round, _ = walk(*before, PREEMPT)
    assert (round.state, round.preempted, round.recoverable) == (State.ENDED, True, False)


def test_a_running_round_saves_first_and_then_ends() -> None:
    round, actions = walk(*RUNNING, PREEMPT)
    assert (round.state, round.preempting) == (State.RUNNING, True)
    assert actions == (Save(round=0), GRACE)
    round, actions = step(round, SAVED)
    assert (round.state, round.preempted, round.saved_step) == (State.STOPPING, True, 7)
    assert actions[0] == KILL


def test_a_script_without_a_training_of_ours_gets_time_to_save_its_own() -> None:
    round, actions = walk(*RUNNING, PREEMPT, job_saved())
    assert (round.state, round.preempted, round.saved_step) == (State.STOPPING, True, None)
    assert actions[0] == StopRound(
        round=round.number, signal="SIGTERM", grace=round.timeouts.preempt_grace
    )


@pytest.mark.parametrize("before", [RUNNING, (*RUNNING, DEAD)])
def test_the_same_wish_from_another_process_changes_nothing(before: tuple[Event, ...]) -> None:
    round, _ = walk(*before, PREEMPT)
    assert step(round, PREEMPT) == (round, ())


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_who_insists_does_not_wait_for_the_save(signal: str) -> None:
    round, _ = walk(*RUNNING, PREEMPT, Interrupt(signal=signal))
    assert (round.state, round.preempted) == (State.STOPPING, False)
    assert round.interrupted == signal


@pytest.mark.parametrize("event", [SAVED, job_not_saved("full"), GraceOver()])
def test_a_save_that_nobody_asked_for_changes_nothing(event: Event) -> None:
    round, _ = walk(*RUNNING)
    assert step(round, event) == (round, ())


def test_what_cannot_be_saved_is_tried_again_until_the_time_is_over() -> None:
    round, actions = walk(*RUNNING, PREEMPT, job_not_saved("the disk is full"))
    assert (round.state, actions) == (State.RUNNING, ())
    assert step(round, SAVED)[0].preempted
    round, actions = step(round, GraceOver())
    assert (round.state, round.preempted, round.interrupted) == (State.STOPPING, False, "SIGTERM")
    assert round.unsaved == "the disk is full"
    assert isinstance(actions[0], StopRound) and actions[0].signal == "SIGTERM"


def test_who_has_no_place_to_save_it_is_not_waited_for() -> None:
    reason = "checkpoints are off"
    round, _ = walk(*RUNNING, PREEMPT, job_not_saved(reason, for_good=True))
    assert (round.state, round.preempted, round.unsaved) == (State.STOPPING, False, reason)


def test_without_a_word_from_the_chief_it_was_too_slow() -> None:
    round, _ = walk(*RUNNING, PREEMPT, GraceOver())
    assert round.unsaved == "it took more than 25 s"


def test_when_all_is_done_the_end_is_not_hurried() -> None:
    events = [done(task.name) for task in TWO]
    round, _ = walk(*RUNNING, *events)
    assert step(round, PREEMPT) == (round, ())


# --- while workers die ----------------------------------------------------------------------


def test_workers_that_lost_a_peer_meanwhile_leave_and_the_next_round_saves() -> None:
    for events in ((PREEMPT, DEAD), (DEAD, PREEMPT)):
        round, actions = walk(*RUNNING, *events)
        assert round.state is State.LEAVING and round.preempting
        round, _ = walk(PEER, LEFT, round=round)
        assert (round.state, round.recoverable) == (State.ENDED, True)
    assert actions == (Save(round=0), GRACE)  # the chief may save before it leaves


def test_the_chief_saves_on_its_way_out_of_a_round() -> None:
    round, actions = walk(*RUNNING, PREEMPT, DEAD, PEER, SAVED)
    assert (round.state, round.preempted) == (State.STOPPING, True)
    assert actions[0] == KILL


@pytest.mark.parametrize("recovers", [True, False])
def test_the_chief_is_waited_for_though_there_can_be_no_next_round(*, recovers: bool) -> None:
    round, actions = walk(*RUNNING, PREEMPT, LOST, recovers=recovers)
    assert (round.state, actions[0]) == (State.LEAVING, Leave(round=0))
    assert step(round, SAVED)[0].preempted
    round, _ = step(round, LEFT)
    assert (round.state, round.recoverable, round.preempted) == (State.ENDED, False, False)


def test_the_scripts_own_error_ends_the_job_as_always() -> None:
    round, actions = walk(*RUNNING, PREEMPT, raised(0))
    assert (round.state, round.preempted) == (State.STOPPING, False)
    times = round.timeouts
    assert actions[0] == StopRound(
        round=round.number, signal="SIGTERM", grace=times.stop_grace, after=times.own_end
    )


def test_failures_that_were_being_mended_are_not_what_ends_the_job() -> None:
    round, _ = walk(*RUNNING, DEAD, PREEMPT, GraceOver())
    assert (round.state, round.failures, round.preempted) == (State.STOPPING, (), False)


# --- the round after ------------------------------------------------------------------------

MEMORY = (SaveMemory(round=1), SetTimer(state=State.SAVING, seconds=GRACE.seconds))
KEPT = memory_saved(7)
HALF = SetTimer(state=State.RUNNING, seconds=GRACE.seconds / 2)


def waiting(*events: Event) -> Round:
    """The second round, which has not started and has a state in the machines' memory to go on."""
    return walk(*events, round=later(resumes=True))[0]


def test_a_round_that_shall_save_does_not_begin() -> None:
    """No script is needed for it, nor all machines."""
    round, actions = begin(later(resumes=True, preempting=True), frozenset("a"))
    assert (round.state, actions) == (State.SAVING, MEMORY)
    round, _ = begin(later(resumes=False, preempting=True), frozenset("ab"))
    assert (round.state, round.preempted, round.recoverable) == (State.ENDED, True, False)


@pytest.mark.parametrize("before", [(), (JOIN_A,), (JOIN_A, JOIN_B)])
def test_while_the_job_waits_for_a_machine_its_memory_is_saved(before: tuple[Event, ...]) -> None:
    round, actions = step(waiting(*before), PREEMPT)
    assert (round.state, actions) == (State.SAVING, MEMORY)
    round, actions = step(round, KEPT)
    assert (round.state, round.preempted, round.interrupted) == (State.ENDED, True, "SIGTERM")
    assert (round.saved_step, actions) == (7, ())


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (memory_saved(-1, "the disk is full"), "the disk is full"),
        (GraceOver(), "it took more than 25 s"),
        (TimedOut(state=State.SAVING), "it took more than 25 s"),
    ],
)
def test_what_memory_holds_cannot_be_saved(event: Event, reason: str) -> None:
    round, _ = step(waiting(PREEMPT), event)
    assert (round.state, round.preempted, round.unsaved) == (State.ENDED, False, reason)
    assert (round.interrupted, round.root_cause) == ("SIGTERM", None)


def test_a_machine_that_is_lost_meanwhile_may_not_be_the_only_one() -> None:
    round, actions = step(waiting(PREEMPT), LOST)
    assert (round.state, actions) == (State.SAVING, (SaveMemory(round=1),))


def test_who_insists_does_not_wait_for_the_memory_either() -> None:
    round, _ = step(waiting(PREEMPT), Interrupt(signal="SIGINT"))
    assert (round.state, round.interrupted, round.preempted) == (State.ENDED, "SIGINT", False)


@pytest.mark.parametrize("end", [LOST, TimedOut(state=State.JOINING, failure=LOST.failure)])
def test_a_job_that_cannot_go_on_saves_what_memory_holds(end: Event) -> None:
    round, actions = step(waiting(), end)
    assert (round.state, actions) == (State.SAVING, MEMORY)
    round, _ = step(round, KEPT)
    assert (round.state, round.saved_step, round.preempted) == (State.ENDED, 7, False)
    assert round.root_cause is LOST.failure and not round.interrupted


def test_a_later_round_saves_once_its_chief_has_the_state() -> None:
    start, _ = begin(later(resumes=True), frozenset("ab"))
    late, actions = walk(READY_A, READY_B, PREEMPT, round=start)
    assert (late.state, actions) == (State.RUNNING, (GRACE, HALF))
    round, actions = step(late, resumed())
    assert actions == (Save(round=1),)
    assert step(round, resumed()) == (round, ())
    assert step(round, TimedOut(state=State.RUNNING)) == (round, ())
    after, _ = walk(READY_A, READY_B, resumed(), round=start)
    assert step(after, PREEMPT)[1] == (Save(round=1), GRACE)


def test_a_script_that_is_slow_to_its_state_is_not_waited_for() -> None:
    start, _ = begin(later(resumes=True), frozenset("ab"))
    slow = (READY_A, READY_B, PREEMPT, TimedOut(state=State.RUNNING))
    round, actions = walk(*slow, round=start)
    assert (round.state, actions[0]) == (State.STOPPING, kill(number=1))
    killed = [exited(number, -9, requested=True) for number in (0, 1)]
    round, actions = walk(*killed, round=round)
    assert (round.state, actions) == (State.SAVING, MEMORY)
    assert step(round, KEPT)[0].preempted
    # Processes that outlive even SIGKILL do not hold it up.
    round, _ = walk(*slow, TimedOut(state=State.STOPPING), round=start)
    assert round.state is State.SAVING


def test_a_later_round_with_nothing_in_memory_saves_at_once() -> None:
    start, _ = begin(later(resumes=False), frozenset("ab"))
    running, _ = walk(READY_A, READY_B, round=start)
    assert step(running, PREEMPT)[1] == (Save(round=1), GRACE)


# --- one machine of several -----------------------------------------------------------------

GO = ChangeMachines(agents=frozenset({"b"}), within=9.0)


def test_the_workers_leave_for_a_machine_that_has_to_go() -> None:
    round, actions = walk(*RUNNING, GO)
    assert actions == (messages.Regroup(round=0), SetTimer(state=State.RUNNING, seconds=9.0))
    round, _ = walk(left(1), left(0), exited(0, 1), exited(1, 1), round=round)
    assert (round.state, round.recoverable, round.has_regrouped) == (State.ENDED, True, True)


def test_a_step_that_takes_too_long_is_not_waited_for() -> None:
    overdue = TimedOut(state=State.RUNNING)
    round, actions = walk(*RUNNING, GO, overdue)
    assert (round.state, actions[0]) == (State.LEAVING, Leave(round=0))
    round, _ = walk(left(1), left(0), exited(0, 1), exited(1, 1), round=round)
    assert (round.recoverable, round.has_regrouped) == (True, True)
    assert walk(*RUNNING, overdue)[0].state is State.RUNNING
    # Who says nothing at all is killed, and that is a failure.
    round, _ = walk(*RUNNING, GO, overdue, TimedOut(state=State.LEAVING))
    killed = [exited(number, -9, requested=True) for number in (0, 1)]
    round, _ = walk(*killed, round=round)
    assert (round.recoverable, round.has_regrouped) == (True, False)


def test_a_second_machine_joins_the_first() -> None:
    round, _ = walk(*RUNNING, GO, ChangeMachines(agents=frozenset({"a"}), within=9.0))
    assert round.regrouping == {"a", "b"}


def test_the_whole_job_is_preempted_while_one_machine_leaves() -> None:
    round, actions = walk(*RUNNING, GO, PREEMPT)
    assert actions == (Save(round=0), GRACE)
    assert step(round, TimedOut(state=State.RUNNING)) == (round, ())
    round, _ = walk(left(1), left(0), exited(0, 1), exited(1, 1), round=round)
    assert (round.state, round.recoverable, round.preempting) == (State.ENDED, True, True)
