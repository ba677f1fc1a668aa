"""Workers that stay: they leave a round and not their processes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rounds import (
    RUNNING,
    SERVED,
    TASKS,
    comes,
    done,
    exited,
    job_saved,
    kill,
    left,
    lost,
    memory_saved,
    raised,
    saved,
    stayed,
    walk,
)

from tfrun.control.protocol.messages import Leave, Save, SaveMemory
from tfrun.control.rounds.model import (
    ChangeMachines,
    DecideStay,
    Interrupt,
    PlannedTask,
    Preempt,
    Round,
    SetTimer,
    StartTasks,
    State,
    StayDecided,
    TimedOut,
)
from tfrun.control.rounds.staying import begin_in_place
from tfrun.job.restart_policy import Cause, cause_of

LEFT = Leave(round=0)
KILLED = exited(1, -9)
HERE, AFRESH = StayDecided(in_place=True), StayDecided(in_place=False)


def going(*events, **given):
    return walk(*RUNNING, *events, recovers=True, **given)


def test_the_next_round_is_in_place_when_all_are_out() -> None:
    round, actions = going(KILLED, stayed(0))
    assert round.state is State.LEAVING and DecideStay() not in actions
    round, actions = walk(stayed(2, port=7002), round=round)
    assert actions[-1] == DecideStay() and round.state is State.LEAVING
    assert round.waiting == {"worker:0", "worker:2"} and round.stayed["worker:2"] == 7002
    round, actions = walk(HERE, round=round)
    assert (round.state, round.recoverable, round.in_place) == (State.ENDED, True, True)
    assert actions == () and not round.interrupted


def test_who_stays_shortens_the_time_of_those_that_do_not() -> None:
    round, actions = going(KILLED, stayed(0))
    seconds = round.timeouts.straggler_grace
    assert actions == (SetTimer(state=State.LEAVING, seconds=seconds),)
    round, actions = walk(TimedOut(state=State.LEAVING), round=round)
    assert actions[0] == kill("worker:2")
    round, actions = walk(exited(2, -9, requested=True), round=round)
    assert actions == (DecideStay(),) and round.waiting == {"worker:0"}


def test_who_says_that_it_comes_is_waited_for() -> None:
    round, _ = going(KILLED, stayed(0))
    again = (SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace),)
    for _ in range(3):
        round, actions = walk(comes(2), round=round)
        assert actions == again and not round.killed
    assert walk(comes(0), round=round) == (round, ())  # it is out already
    assert walk(comes(1), round=round) == (round, ())  # it has died
    round, actions = walk(stayed(2), round=round)
    assert actions[-1] == DecideStay()


def test_who_was_killed_does_not_come() -> None:
    round, _ = going(KILLED, stayed(0), comes(2), TimedOut(state=State.LEAVING))
    assert round.killed and walk(comes(2), round=round) == (round, ())
    running, _ = going()
    assert walk(comes(2), round=running) == (running, ())


def test_one_that_lost_sight_of_a_peer_before_that_was_news_has_the_others_leave() -> None:
    round, actions = going(stayed(0))
    assert round.state is State.LEAVING and actions[0] == LEFT
    assert [f.follows_from_a_peer for f in round.failures] == [True]
    round, _ = walk(KILLED, stayed(2), round=round)
    assert round.root_cause is not None and round.root_cause.task == "worker:1"


def test_a_regroup_is_no_failure() -> None:
    round, actions = going(ChangeMachines(agents=frozenset({"b"})), stayed(1))
    assert actions[0] == LEFT
    round, actions = walk(stayed(0), stayed(2), round=round)
    assert round.has_regrouped and actions == (DecideStay(),)
    round, _ = walk(HERE, round=round)
    assert round.has_regrouped and round.in_place


def test_a_death_while_regrouping_is_one() -> None:
    round, _ = going(ChangeMachines(agents=frozenset({"b"})), stayed(1), exited(0, -9), stayed(2))
    assert not round.has_regrouped and round.waiting == {"worker:1", "worker:2"}


def test_who_dies_while_it_waits_is_decided_without() -> None:
    round, actions = going(KILLED, stayed(0), stayed(2), exited(0, -9))
    assert actions == (DecideStay(),) and round.waiting == {"worker:2"}
    round, actions = walk(exited(2, -9), round=round)
    assert (round.state, round.recoverable, round.in_place) == (State.ENDED, True, False)
    assert {cause_of(failure) for failure in round.failures} == {Cause.INFRASTRUCTURE}


def test_a_machine_that_goes_takes_those_that_wait_there() -> None:
    round, actions = going(KILLED, stayed(0), stayed(2), lost("a", spare=True))
    assert actions == (DecideStay(),) and round.waiting == {"worker:2"}
    round, _ = walk(lost("b", spare=True), round=round)
    assert round.state is State.ENDED and not round.in_place


def test_where_none_stays_it_is_as_ever() -> None:
    round, _ = going(KILLED, saved(0), left(0), exited(0, 1), left(2), exited(2, 1))
    assert (round.state, round.recoverable, round.in_place) == (State.ENDED, True, False)


def test_some_stay_and_some_leave() -> None:
    round, actions = going(KILLED, stayed(0), left(2), exited(2, 1))
    assert actions == (DecideStay(),) and round.waiting == {"worker:0"}


def test_without_a_round_in_place_they_are_told_to_leave_again() -> None:
    round, actions = going(KILLED, stayed(0), stayed(2), AFRESH)
    grace = round.timeouts.leave_grace
    assert actions == (LEFT, SetTimer(state=State.LEAVING, seconds=grace))
    assert round.awaited == {"worker:0", "worker:2"}
    round, actions = walk(stayed(0), round=round)  # it has said so already
    assert actions == () and not round.waiting
    round, _ = walk(saved(0), left(0), exited(0, 1), exited(2, 1), round=round)
    assert (round.state, round.recoverable, round.in_place) == (State.ENDED, True, False)


def test_one_that_does_not_leave_then_is_killed() -> None:
    round, _ = going(KILLED, stayed(0), stayed(2), AFRESH, TimedOut(state=State.LEAVING))
    assert round.killed and round.state is State.LEAVING


def test_a_decision_that_comes_late_changes_nothing() -> None:
    before, _ = going(KILLED, stayed(0))
    assert walk(HERE, round=before) == (before, ())
    running, _ = going()
    assert walk(HERE, round=running) == (running, ())


def test_the_scripts_own_error_ends_the_job_whoever_waits() -> None:
    round, _ = going(stayed(0), raised(1))
    assert round.state is State.STOPPING
    round, _ = walk(exited(1, 1), exited(0, -15), round=round)
    assert round.state is State.STOPPING and not round.recoverable
    round, _ = walk(exited(2, -15), round=round)
    assert round.state is State.ENDED and not round.recoverable


def test_ctrl_c_ends_those_that_wait() -> None:
    round, _ = going(KILLED, stayed(0), stayed(2), Interrupt(signal="SIGINT"))
    assert round.state is State.STOPPING
    assert walk(HERE, round=round) == (round, ())


def test_a_preempted_job_has_them_write_their_state() -> None:
    round, actions = going(KILLED, stayed(0), Preempt())
    assert Save(round=0) in actions
    round, actions = walk(stayed(2), round=round)
    assert actions == (DecideStay(),)
    round, actions = walk(AFRESH, saved(0), exited(0, 1), exited(2, 1), round=round)
    assert round.state is State.ENDED and round.preempting and round.recoverable
    saves, _ = going(KILLED, stayed(0), Preempt(), stayed(2), job_saved(3))
    assert saves.state is State.STOPPING and saves.preempted
    in_memory = replace(round, state=State.SAVING, in_memory=True)
    assert SaveMemory(round=0) in walk(lost("a"), round=in_memory)[1]
    assert walk(memory_saved(3), round=in_memory)[0].preempted


def test_who_has_ended_its_script_does_not_stay() -> None:
    round, actions = going(done(0), KILLED)
    assert kill("worker:0") in actions
    round, actions = walk(exited(0, -9, requested=True), stayed(2), round=round)
    assert actions[-1] == DecideStay() and round.waiting == {"worker:2"}


def test_with_servers_nobody_stays() -> None:
    before, _ = walk(*RUNNING, tasks=SERVED, recovers=True)
    assert walk(stayed("chief:0"), round=before) == (before, ())


def test_one_aside_does_not_stay() -> None:
    tasks = (*TASKS, PlannedTask(name="evaluator:0", agent="a", is_aside=True, replaceable=True))
    before, _ = going(tasks=tasks)
    assert walk(stayed("evaluator:0"), round=before) == (before, ())
    round, actions = walk(KILLED, stayed(0), stayed(2), round=before)
    assert DecideStay() not in actions  # it is leaving
    _, actions = walk(exited("evaluator:0", 1), round=round)
    assert actions == (DecideStay(),)


@pytest.mark.parametrize("recovers", [False, True])
def test_a_job_that_does_not_recover_ends(recovers: bool) -> None:
    round, _ = walk(*RUNNING, stayed(0), recovers=recovers)
    assert (round.state is State.LEAVING) == recovers


def test_a_round_in_place_begins_at_once() -> None:
    ports = {"a": (1, 2), "b": (3,)}
    round = Round(number=3, tasks=TASKS, recovers=True, ports=ports)
    round, actions = begin_in_place(round)
    assert (round.state, actions) == (State.RUNNING, (StartTasks(),))
    round, actions = walk(exited(1, -9), round=round)  # before anybody has made a step
    assert actions[0] == Leave(round=3)
