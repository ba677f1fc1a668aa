"""A round that recovers: who is waited for, for how long, and what makes it the last one."""

from __future__ import annotations

import dataclasses

import pytest
from control_rounds import RUNNING, SERVED, TASKS, done, exited, kill, left, lost, raised, saved
from control_rounds import walk as walk_from

from tfrun.control.protocol import messages
from tfrun.control.protocol.messages import Leave, StopRound
from tfrun.control.rounds.after_failure import worth_saving
from tfrun.control.rounds.model import (
    Action,
    AgentJoined,
    AgentLost,
    ChangeMachines,
    Event,
    GiveUpAgents,
    Interrupt,
    PrepareAgents,
    Round,
    SetTimer,
    State,
    TimedOut,
)
from tfrun.control.rounds.state_machine import begin, step

TIMED_OUT = TimedOut(state=State.LEAVING)


def of_three(number: int) -> Round:
    return Round(number=number, tasks=TASKS, recovers=True, keeps=True)


def walk(*events: Event, number: int = 0) -> tuple[Round, tuple[Action, ...]]:
    """Returns the round after the events, which follow its start, and the last one's actions."""
    return walk_from(*RUNNING, *events, round=of_three(number))


KILLED = exited(1, -9)
LEAVE = Leave(round=0)
GRACE, SHORT = Round(number=0, tasks=()).timeouts.leave_grace, 2.0


def timer(seconds: float) -> SetTimer:
    return SetTimer(state=State.LEAVING, seconds=seconds)


def test_survivors_are_left_alone_until_they_leave() -> None:
    round, actions = walk(KILLED)
    assert (round.state, actions) == (State.LEAVING, (LEAVE, timer(GRACE)))
    for event in (saved(0), left(0), saved(2), left(2), exited(0, 1)):
        round, actions = step(round, event)
        assert not any(isinstance(action, StopRound) for action in actions)
    round, actions = step(round, exited(2, 1))
    assert (round.state, round.recoverable, actions) == (State.ENDED, True, ())
    assert round.root_cause is not None and round.root_cause.task == "worker:1"


def test_peers_errors_alone_lead_there_too() -> None:
    round, actions = walk(left(0))
    assert (round.state, actions) == (State.LEAVING, (LEAVE, timer(GRACE)))


def test_a_snapshot_of_one_that_leaves_shortens_the_wait_for_the_others() -> None:
    assert walk(saved(0), left(0))[1] == (LEAVE, timer(SHORT))
    assert walk(KILLED, saved(0), left(0))[1] == (timer(SHORT),)
    assert walk(KILLED, left(0), saved(0))[1] == (timer(SHORT),)
    # One that was written before, without a failure, tells nothing of the others.
    assert walk(saved(1), KILLED)[1] == (LEAVE, timer(GRACE))


def test_when_nobody_is_left_who_could_write_the_wait_is_short() -> None:
    assert walk(KILLED, left(0), left(2))[1] == (timer(SHORT),)


def test_who_does_not_leave_is_killed_and_the_round_can_be_followed() -> None:
    round, actions = walk(KILLED, TIMED_OUT)
    assert actions == (kill(), timer(GRACE))
    round, _ = step(round, exited(0, -9, requested=True))
    round, _ = step(round, exited(2, -9, requested=True))
    assert (round.state, round.recoverable) == (State.ENDED, True)
    assert [failure.task for failure in round.failures] == ["worker:1"]


def test_one_that_was_stopped_is_the_cause_of_its_peers_errors() -> None:
    """SIGSTOP, or a cut link: no process has ended, and one says nothing."""
    events = (saved(0), left(0, time=4.0), exited(0, 1), left(2, time=3.0), exited(2, 1))
    round, _ = walk(*events, TIMED_OUT)
    round, _ = step(round, exited(1, -9, requested=True, time=9.0))
    assert (round.state, round.recoverable) == (State.ENDED, True)
    cause = round.root_cause
    assert cause is not None
    assert (cause.task, cause.status, cause.time) == ("worker:1", None, 3.0)
    assert cause.tail == "worker 1 stopped answering and was killed"


def test_who_leaves_in_the_moment_it_is_given_up_has_not_been_silent() -> None:
    """Its end is that of one that lost a peer, not an exit code of the script's own."""
    round, _ = walk(saved(2), left(2), exited(2, 1), TIMED_OUT, left(0), exited(0, 1))
    assert round.state is State.LEAVING
    round, _ = step(round, exited(1, -9, requested=True))
    assert (round.state, round.recoverable) == (State.ENDED, True)
    assert round.root_cause is not None and round.root_cause.task == "worker:1"


@pytest.mark.parametrize("spare", [True, False])
def test_a_machine_that_is_gone_explains_why_its_worker_says_nothing(*, spare: bool) -> None:
    """Its peers notice in milliseconds, the heartbeats in seconds."""
    peers = (left(0), exited(0, 1), left(1), exited(1, 1))
    round, _ = walk(*peers, TIMED_OUT, lost("b", spare=spare))
    assert (round.state, round.recoverable) == (State.ENDED, spare)
    assert round.root_cause is not None
    assert (round.root_cause.task, round.root_cause.code) == ("b", "TFRUN-301")


@pytest.mark.parametrize("spare", [True, False])
def test_the_machine_of_what_outlives_sigkill_counts_as_lost(*, spare: bool) -> None:
    """A process in the kernel, or whose end nobody tells of: the others go on, or are saved."""
    round, actions = walk(KILLED, saved(0), left(0), exited(0, 1), TIMED_OUT, TIMED_OUT)
    assert (round.state, actions) == (State.LEAVING, (GiveUpAgents(agents=frozenset("b")),))
    round, actions = step(round, lost("b", spare=spare))
    assert (round.state, round.recoverable, actions) == (State.ENDED, spare, ())
    assert worth_saving(round) is not spare
    assert round.root_cause is not None and round.root_cause.task == "worker:1"


def test_a_doubt_that_strict_makes_a_failure_of_ends_all_at_once() -> None:
    """They know nothing of it, and would train on and save in the meantime."""
    round, actions = walk(dataclasses.replace(raised(0), strict=True))
    assert round.state is State.STOPPING and actions[0] == kill()


@pytest.mark.parametrize("event", [raised(0, "ValueError"), exited(0, 3)])
@pytest.mark.parametrize("before", [(), (KILLED,), (left(2),)])
def test_the_scripts_own_failure_ends_the_job(before: tuple[Event, ...], event: Event) -> None:
    round, actions = walk(*before, event)
    assert round.state is State.STOPPING
    times = round.timeouts
    assert actions[0] == StopRound(
        round=round.number, signal="SIGTERM", grace=times.stop_grace, after=times.own_end
    )
    assert round.root_cause is not None and round.root_cause.task == "worker:0"
    for number in range(3):
        round, _ = step(round, exited(number, -15, requested=True))
    assert (round.state, round.recoverable) == (State.ENDED, False)


def test_an_exit_after_a_peers_error_is_no_failure_of_the_script() -> None:
    round, _ = walk(left(0), exited(0, 1), left(2), exited(2, 1), KILLED)
    assert (round.state, round.recoverable) == (State.ENDED, True)


def test_those_that_have_finished_do_not_hold_up_the_next_round() -> None:
    two_done, killed = done("worker:2"), kill("worker:2")
    assert walk(two_done, KILLED)[1] == (LEAVE, killed, timer(GRACE))
    assert walk(KILLED, two_done)[1] == (killed,)
    round, _ = walk(KILLED, two_done, left(0), exited(0, 1), exited(2, -9, requested=True))
    assert (round.state, round.recoverable) == (State.ENDED, True)


def test_one_that_left_without_an_error_is_waited_for_no_more() -> None:
    assert walk(KILLED, left(0), exited(2, 0))[1] == (timer(SHORT),)


def test_all_die_at_once() -> None:
    round, _ = walk(KILLED, exited(0, -11), exited(2, -6))
    assert (round.state, round.recoverable, len(round.failures)) == (State.ENDED, True, 3)


@pytest.mark.parametrize("before", [(), (KILLED,)])
def test_a_lost_agent_that_can_be_spared(before: tuple[Event, ...]) -> None:
    round, _ = walk(*before, lost("b", spare=True))
    assert round.state is State.LEAVING
    round, _ = step(round, exited(0, -9))
    round, _ = step(round, KILLED)
    assert (round.state, round.recoverable) == (State.ENDED, True)


@pytest.mark.parametrize("before", [(), (KILLED,)])
def test_without_an_agent_that_cannot_be_spared_the_others_keep_their_state(
    before: tuple[Event, ...],
) -> None:
    """No round follows, but a machine saves what they have kept: they were killed at once."""
    round, actions = walk(*before, lost("b", spare=False))
    assert round.state is State.LEAVING and actions == (() if before else (LEAVE, timer(GRACE)))
    second = () if before else (left(1), exited(1, 1))
    for event in (saved(0), left(0), exited(0, 1), *second):
        round, _ = step(round, event)
    assert (round.state, round.recoverable, worth_saving(round)) == (State.ENDED, False, True)


def test_what_an_ended_round_has_in_memory_is_saved_unless_the_script_has_failed() -> None:
    """Nor when a person has ended it, or nothing is ever kept."""
    gone = (lost("b", spare=False), exited(0, 1), exited(1, 1))
    for events in ((raised(0, "ValueError"), *gone), (exited(0, 3), *gone)):
        round, _ = walk(*events)
        assert (round.state, worth_saving(round)) == (State.ENDED, False)
    round, _ = walk(KILLED, Interrupt(signal="SIGINT"), exited(0, 130), exited(2, 130))
    assert (round.state, worth_saving(round)) == (State.ENDED, False)
    nothing_kept = Round(number=0, tasks=TASKS)
    round, actions = walk_from(*RUNNING, lost("b", spare=False), round=nothing_kept)
    assert actions[0] == StopRound(
        round=round.number, signal="SIGTERM", grace=round.timeouts.stop_grace
    )
    on_servers = Round(number=0, tasks=SERVED, keeps=True, recovers=True)
    round, _ = walk_from(*RUNNING, lost("b", spare=False), round=on_servers)
    assert round.state is State.STOPPING


def test_ctrl_c_while_they_leave_ends_the_job_as_it_always_does() -> None:
    round, actions = walk(KILLED, Interrupt(signal="SIGINT"))
    assert (round.state, round.interrupted) == (State.STOPPING, "SIGINT")
    assert actions[0] == StopRound(
        round=round.number, signal="SIGINT", grace=round.timeouts.interrupt_grace
    )
    for number in (0, 2):
        round, _ = step(round, exited(number, 130))
    assert (round.state, round.recoverable, round.root_cause) == (State.ENDED, False, None)


def preparing(number: int) -> Round:
    return begin(of_three(number), frozenset("ab"))[0]


def test_a_later_round_begins_with_the_agents_that_are_there() -> None:
    round, actions = begin(Round(number=1, tasks=TASKS), frozenset("abc"))
    assert (round.state, actions) == (State.PREPARING, (PrepareAgents(),))


@pytest.mark.parametrize(
    ("number", "event", "recoverable"),
    [
        (1, lost("b", spare=True), True),
        (1, lost("b", spare=True, code="TFRUN-404"), True),
        (1, lost("b", spare=False), False),
        (1, lost("b", spare=True, code="TFRUN-402"), False),  # it would not import again
        (0, lost("b", spare=True), False),  # a job that has never run
    ],
)
def test_an_agent_is_lost_before_the_start(
    number: int, event: AgentLost, recoverable: bool
) -> None:
    round, _ = step(preparing(number), event)
    assert (round.state, round.recoverable) == (State.ENDED, recoverable)


def test_a_death_when_all_have_finished_is_no_failure() -> None:
    events = [done(task.name) for task in TASKS]
    round, _ = walk(*events, KILLED, lost("b", spare=True), exited(0, 0))
    assert (round.state, round.recoverable, round.failures) == (State.ENDED, False, ())


REGROUP = ChangeMachines(agents=frozenset({"c"}))


def test_workers_are_asked_to_leave_for_more_of_them() -> None:
    round, actions = walk(REGROUP)
    assert (round.state, actions) == (State.RUNNING, (messages.Regroup(round=0),))
    assert not round.has_regrouped or not round.failures
    round, actions = step(round, left(1))
    assert (round.state, actions[0]) == (State.LEAVING, LEAVE)
    for event in (left(0), left(2), exited(0, 1), exited(1, 1), exited(2, 1)):
        round, _ = step(round, event)
    assert (round.state, round.recoverable, round.has_regrouped) == (State.ENDED, True, True)


def test_a_death_on_the_way_is_a_failure() -> None:
    round, _ = walk(REGROUP, left(1), exited(0, -9), exited(1, 1), left(2), exited(2, 1))
    assert (round.recoverable, round.has_regrouped) == (True, False)
    round, _ = walk(REGROUP, left(0), lost("b", spare=True), left(1), exited(0, 1))
    round, _ = step(round, exited(1, 1))
    assert (round.recoverable, round.has_regrouped) == (True, False)


def test_who_ends_without_having_left_ends_the_job_as_ever() -> None:
    all_done = [done(f"worker:{number}") for number in range(3)]
    assert walk(REGROUP, *all_done)[0].state is State.RELEASING
    assert walk(REGROUP, raised(0, "ValueError"))[0].state is State.STOPPING


def test_a_round_that_ends_anyway_is_not_asked() -> None:
    for before in ((done("worker:0"),), (KILLED,), (Interrupt(signal="SIGINT"),)):
        round, _ = walk(*before)
        assert step(round, REGROUP) == (round, ())
    once = Round(number=0, tasks=TASKS)  # max_restarts is 0
    for event in (*RUNNING, REGROUP):
        once, actions = step(once, event)
    assert actions == () and not once.regrouping


def test_one_that_is_lost_while_others_are_waited_for_may_come_back() -> None:
    for number in (0, 1):
        round = Round(number=number, tasks=TASKS, recovers=True)
        round, _ = step(round, AgentJoined(agent="a"))
        round, actions = step(round, lost("a", spare=True))
        assert (round.state, round.joined, actions) == (State.JOINING, frozenset(), ())
        round, _ = step(round, AgentJoined(agent="b"))
        round, actions = step(round, AgentJoined(agent="a"))
        assert actions == (PrepareAgents(),)
        round, _ = step(Round(number=number, tasks=TASKS), lost("a", spare=False))
        assert round.state is State.ENDED and not round.recoverable
