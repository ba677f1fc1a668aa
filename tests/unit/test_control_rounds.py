"""Each row of the round's transition table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rounds import (
    JOIN_A,
    JOIN_B,
    READY_A,
    READY_B,
    RUNNING,
    SERVED,
    TASKS,
    done,
    exited,
    kill,
    left,
    lost,
    raised,
    saved,
    walk,
)

from tfrun.control.protocol.messages import MemorySaved, Release, StopRound, WorkerExited
from tfrun.control.rounds.model import (
    Action,
    AgentJoined,
    AgentLost,
    AgentPrepared,
    ChangeMachines,
    EndsAwaited,
    Event,
    GraceOver,
    Interrupt,
    PlannedTask,
    Preempt,
    PrepareAgents,
    Reported,
    Round,
    SetTimer,
    StartTasks,
    State,
    StayDecided,
    TimedOut,
)
from tfrun.control.rounds.state_machine import TRANSITIONS, step
from tfrun.job import reports
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure

RELEASING = (*RUNNING, *(done(task.name) for task in TASKS))
STOPPING = (*RUNNING, raised("worker:1", time=1.0))
LEAVING = (*RUNNING, exited("worker:1", -9, 1.0))
BEFORE = {
    State.JOINING: (JOIN_A,),
    State.PREPARING: (JOIN_A, JOIN_B),
    State.RUNNING: RUNNING,
    State.RELEASING: RELEASING,
    State.LEAVING: LEAVING,
    State.STOPPING: STOPPING,
    State.SAVING: (JOIN_A, Preempt()),
    State.ENDED: (*RELEASING, *(exited(task.name) for task in TASKS)),
}


def at(state: State, *events: Event) -> tuple[Round, tuple[Action, ...]]:
    """Returns the round after a way into `state` and then the events."""
    round = Round(
        number=0, tasks=TASKS, recovers=state is State.LEAVING, resumes=state is State.SAVING
    )
    return walk(*BEFORE[state], *events, round=round)


@pytest.mark.parametrize("state", State)
def test_the_ways_into_each_state(state: State) -> None:
    assert at(state)[0].state is state


def test_the_good_way() -> None:
    assert walk(JOIN_A)[1] == ()
    assert walk(JOIN_A, JOIN_B)[1] == (PrepareAgents(),)
    assert walk(JOIN_A, JOIN_B, READY_A)[1] == ()
    round, actions = walk(*RUNNING)
    assert actions == (StartTasks(),)
    assert round.ports == {"a": (1, 2), "b": (3,)}
    timer = SetTimer(state=State.RELEASING, seconds=5 * round.timeouts.stop_grace)
    assert walk(*RELEASING)[1] == (Release(round=0), timer)
    round, actions = at(State.ENDED)
    assert (round.root_cause, round.is_over, actions) == (None, True, ())


def test_the_last_agent_joins_twice() -> None:
    assert walk(JOIN_A, JOIN_A)[0].state is State.JOINING


@pytest.mark.parametrize("order", ["done first", "exit first", "exit only"])
def test_done_and_exit_come_in_any_order(order: str) -> None:
    """`os._exit(0)` skips the report; a pipe may be read later than the process's end."""
    events: list[Event] = []
    for task in TASKS:
        said, exit = done(task.name), exited(task.name)
        events += {"done first": [said, exit], "exit first": [exit, said], "exit only": [exit]}[
            order
        ]
    round, actions = walk(*RUNNING, *events)
    assert (round.state, round.root_cause, actions) == (State.ENDED, None, ())


def test_servers_are_not_waited_for_but_released() -> None:
    round, actions = walk(*RUNNING, done("chief:0"), tasks=SERVED)
    assert round.state is State.RELEASING
    assert Release(round=0) in actions
    round, _ = step(round, exited("worker:0", -9))
    round, _ = step(round, exited("ps:0", -9))
    round, _ = step(round, exited("chief:0", 0))
    assert (round.state, round.root_cause) == (State.ENDED, None)


@pytest.mark.parametrize("code", [0, 1, -9])
def test_a_server_that_ends_by_itself_has_failed(code: int) -> None:
    round, actions = walk(*RUNNING, exited("ps:0", code), tasks=SERVED)
    assert round.state is State.STOPPING
    assert isinstance(actions[0], StopRound)
    assert round.root_cause is not None and round.root_cause.task == "ps:0"


@pytest.mark.parametrize(
    ("event", "is_scripts"),
    [(raised("worker:1"), True), (exited("worker:1", 3), True), (lost("b"), False)],
)
def test_a_failure_stops_the_others(event: Event, is_scripts: bool) -> None:
    """Where a script has failed, the others may come to the same end by themselves first."""
    round, actions = walk(*RUNNING, event)
    grace = round.timeouts.stop_grace
    after = round.timeouts.own_end if is_scripts else 0.0
    assert round.state is State.STOPPING
    assert actions == (
        StopRound(round=round.number, signal="SIGTERM", grace=grace, after=after),
        SetTimer(state=State.STOPPING, seconds=after + grace + round.timeouts.agent_exit),
    )
    assert len(round.failures) == 1


def test_one_that_has_finished_may_still_fail_before_its_release() -> None:
    round, _ = walk(*RUNNING, done("worker:1"), exited("worker:1", -11))
    assert round.state is State.STOPPING
    assert round.root_cause is not None and round.root_cause.status == ExitStatus(code=-11)


def test_the_only_task_that_fails_ends_the_round_at_once() -> None:
    alone = (PlannedTask(name="worker:0", agent="a"),)
    round, actions = walk(JOIN_A, READY_A, exited("worker:0", 7), tasks=alone)
    assert (round.state, actions) == (State.ENDED, ())


@pytest.mark.parametrize("state", [State.JOINING, State.PREPARING])
@pytest.mark.parametrize("event", [lost("a"), Interrupt(signal="SIGINT")])
def test_nothing_has_started_so_nothing_is_waited_for(state: State, event: Event) -> None:
    round, actions = at(state, event)
    assert round.state is State.ENDED
    assert not any(isinstance(action, StartTasks) for action in actions)
    assert bool(round.root_cause) == isinstance(event, AgentLost)


@pytest.mark.parametrize("state", [State.JOINING, State.PREPARING])
def test_the_cluster_does_not_form(state: State) -> None:
    failure = Failure(task="b", time=1.0, code="TFRUN-303", tail="waiting for b")
    round, _ = at(state, TimedOut(state=state, failure=failure))
    assert (round.state, round.root_cause) == (State.ENDED, failure)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("of", State)
def test_a_timer_of_another_state_changes_nothing(state: State, of: State) -> None:
    if of is state:
        return
    round, _ = at(state)
    assert step(round, TimedOut(state=of)) == (round, ())


@pytest.mark.parametrize("state", [State.RELEASING, State.STOPPING])
def test_processes_that_never_end_do_not_hold_up_the_end(state: State) -> None:
    round, actions = at(state, TimedOut(state=state))
    assert (round.state, round.is_over, actions) == (State.ENDED, False, ())


@pytest.mark.parametrize(("signal", "sent"), [("SIGINT", "SIGINT"), ("SIGHUP", "SIGTERM")])
def test_an_interrupt_asks_and_the_second_one_kills(signal: str, sent: str) -> None:
    round, actions = walk(*RUNNING, Interrupt(signal=signal))
    assert (round.state, round.interrupted) == (State.STOPPING, signal)
    assert actions[0] == StopRound(
        round=round.number, signal=sent, grace=round.timeouts.interrupt_grace
    )
    round, actions = step(round, Interrupt(signal="SIGTERM"))
    assert actions == (kill(),)
    assert round.interrupted == signal


@pytest.mark.parametrize("state", [State.RELEASING, State.STOPPING])
def test_an_interrupt_of_what_ends_anyway_kills(state: State) -> None:
    round, actions = at(state, Interrupt(signal="SIGINT"))
    assert (round.state, actions) == (state, (kill(),))


def test_what_workers_say_because_of_an_interrupt_is_no_failure() -> None:
    stop = Interrupt(signal="SIGINT")
    round, _ = walk(*RUNNING, stop, raised("worker:0", kind="KeyboardInterrupt"))
    for event in (exited("worker:0", 130), exited("worker:1", 1), exited("worker:2", -2)):
        round, _ = step(round, event)
    assert (round.state, round.root_cause, round.interrupted) == (State.ENDED, None, "SIGINT")


@pytest.mark.parametrize("signal", [2, 9, 15])
def test_those_that_we_stopped_are_no_failures(signal: int) -> None:
    ends = [exited(task, -signal, requested=True) for task in ("worker:0", "worker:2")]
    round, _ = walk(*STOPPING, *ends)
    assert [failure.task for failure in round.failures] == ["worker:1"]


def test_a_signal_that_we_did_not_send_is_a_failure_of_its_own() -> None:
    peers = left("worker:1", time=1.0)
    round, _ = walk(*RUNNING, peers, exited("worker:2", -9))
    assert round.root_cause is not None and round.root_cause.task == "worker:2"


def test_an_end_while_stopping_may_come_from_an_earlier_cause() -> None:
    """The segmentation fault of worker 2 was first; worker 1 only noticed it."""
    round, _ = walk(*RUNNING, left("worker:1", time=2.0), exited("worker:2", -11))
    assert round.root_cause is not None
    assert (round.root_cause.task, round.root_cause.status) == ("worker:2", ExitStatus(code=-11))


def test_lack_of_memory_is_found_although_we_send_the_same_signal() -> None:
    event = exited("worker:2", -9, time=0.5, memory=True, requested=True)
    round, _ = walk(*RUNNING, left("worker:1", time=1.0), event)
    assert round.root_cause is not None and round.root_cause.code == "TFRUN-403"


def test_an_exception_and_its_exit_are_one_failure() -> None:
    round, _ = walk(*STOPPING, exited("worker:1", 4, time=2.0))
    (failure,) = round.failures
    assert failure.error and failure.error.type == "ValueError"
    assert (failure.status, failure.tail, failure.time) == (ExitStatus(code=4), "the tail", 1.0)


def test_one_that_was_killed_in_its_exit_handlers_still_failed_by_its_exception() -> None:
    round, _ = walk(*STOPPING, exited("worker:1", -9))
    (failure,) = round.failures
    assert failure.status == ExitStatus(code=1)


@pytest.mark.parametrize("state", State)
def test_an_agent_is_lost_in_every_state(state: State) -> None:
    before, _ = at(state)
    round, actions = step(before, lost("b"))
    match state:
        case State.JOINING | State.PREPARING:
            assert (round.state, round.root_cause) == (State.ENDED, lost("b").failure)
        case State.RUNNING:
            assert (round.state, round.root_cause) == (State.STOPPING, lost("b").failure)
        case State.RELEASING:
            assert (round.state, round.root_cause) == (State.RELEASING, None)
        case State.LEAVING:  # with two of three agents' workers gone, and none to spare
            assert round.state is State.STOPPING
        case State.STOPPING:
            assert round.failures == (*before.failures, lost("b").failure)
            assert round.state is State.STOPPING
        case State.ENDED:
            assert (round, actions) == (before, ())
    if state is not State.ENDED:
        assert round.lost == {"b"}


@pytest.mark.parametrize("state", [State.RUNNING, State.RELEASING, State.STOPPING])
def test_all_agents_lost_is_the_end(state: State) -> None:
    round, actions = at(state, lost("a"), lost("b"))
    assert (round.state, round.is_over, actions) == (State.ENDED, True, ())


def test_two_failures_have_one_cause_whatever_comes_first() -> None:
    early, late = raised("worker:2", time=1.0), raised("worker:0", time=2.0)
    for events in ((early, late), (late, early)):
        round, _ = walk(*RUNNING, *events)
        assert len(round.failures) == 2
        assert round.root_cause is not None and round.root_cause.task == "worker:2"


def test_the_table_names_all_states_and_only_events() -> None:
    assert set(TRANSITIONS) == set(State)
    events = {AgentJoined, AgentPrepared, AgentLost, WorkerExited, MemorySaved, Interrupt}
    events |= {ChangeMachines, TimedOut, EndsAwaited, Preempt, GraceOver, StayDecided}
    events |= {
        reports.Done,
        reports.Error,
        reports.SnapshotTaken,
        reports.WaitsInCollective,
        reports.Applied,
        reports.OneReplicaEach,
        reports.Stayed,
        reports.Comes,
    }
    events |= {reports.Resumed, reports.FirstStep, reports.StateSaved, reports.StateNotSaved}
    assert {kind for row in TRANSITIONS.values() for kind in row} == events
    assert TRANSITIONS[State.ENDED] == {}


@pytest.mark.parametrize("state", State)
def test_events_outside_the_row_change_nothing(state: State) -> None:
    round, _ = at(state)
    for event in (
        JOIN_B,
        READY_B,
        done("worker:0"),
        raised("worker:0"),
        exited("worker:0"),
        saved("worker:0"),
    ):
        kind = type(event.report if isinstance(event, Reported) else event)
        if kind not in TRANSITIONS[state]:
            assert step(round, event) == (round, ())


def test_a_round_is_a_value() -> None:
    """`step` never changes the round that it is given."""
    round = Round(number=0, tasks=TASKS)
    copy = replace(round)
    for event in (*RUNNING, exited("worker:0", 1)):
        step(round, event)
    assert round == copy
