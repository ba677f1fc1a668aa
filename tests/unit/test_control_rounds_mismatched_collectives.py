"""Scripts that end while others go on: those are told, once, and nothing else becomes of it."""

from __future__ import annotations

from dataclasses import replace

from control_rounds import RUNNING, SERVED, done, exited, raised, reported, walk

from tfrun.control.protocol.messages import Ended, Parted, Release
from tfrun.control.rounds.mismatched_collectives import END_SECONDS
from tfrun.control.rounds.model import AwaitEnds, EndsAwaited, PlannedTask, Reported, State
from tfrun.control.rounds.state_machine import step
from tfrun.job.reports import WaitsInCollective
from tfrun.job.restart_policy import Cause, cause_of


def test_those_that_go_on_are_told_who_has_ended() -> None:
    round, actions = walk(*RUNNING, done(1))
    assert actions == (AwaitEnds(seconds=END_SECONDS),)
    round, actions = step(round, done(2, None))
    assert actions == ()  # the first one's time is this one's too
    round, actions = step(round, EndsAwaited())
    assert actions == (Ended(round=0, tasks={"worker:1": 7, "worker:2": None}),)
    assert (round.state, round.failures) == (State.RUNNING, ())
    assert any(isinstance(a, Release) for a in step(round, done(0))[1])


def test_a_later_end_is_told_as_well() -> None:
    round, _ = walk(*RUNNING, done(1), EndsAwaited())
    round, actions = step(round, done(2))
    assert actions == (AwaitEnds(seconds=END_SECONDS),)
    assert step(round, EndsAwaited())[1] == (Ended(round=0, tasks={"worker:1": 7, "worker:2": 7}),)


def test_when_all_have_ended_nobody_is_told() -> None:
    round, _ = walk(*RUNNING, *map(done, range(3)))
    assert step(round, EndsAwaited()) == (round, ())


def test_an_end_is_told_of_once() -> None:
    """The exit of a script that has said "done" is not another one."""
    round, _ = walk(*RUNNING, done(1), EndsAwaited(), exited(1))
    assert round.ended == {"worker:1": 7}


def test_servers_and_those_aside_meet_nobody() -> None:
    two = (*SERVED, PlannedTask(name="chief:1", agent="a"))
    assert walk(*RUNNING, done("chief:0"), tasks=two)[1] == ()
    aside = (
        PlannedTask(name="worker:0", agent="a"),
        PlannedTask(name="evaluator:0", agent="b", is_aside=True),
    )
    assert walk(*RUNNING, done("evaluator:0"), tasks=aside)[1] == ()


def test_who_ends_at_once_is_the_cause_of_what_its_peers_meet() -> None:
    """`os._exit(0)` on one worker: the next round would have the same."""
    for events in ((exited(1), lost_one()), (lost_one(), exited(1))):
        round, _ = walk(*RUNNING, *events, recovers=True)
        assert round.state is State.STOPPING
        cause = round.root_cause
        assert cause is not None and cause_of(cause) is Cause.SCRIPT
        assert (cause.task, cause.code) == ("worker:1", "TFRUN-406")
        assert cause.tail.startswith("worker 0 waited in train.py:7: worker 1 does not come")


def test_a_death_stays_the_cause_of_what_follows() -> None:
    round, _ = walk(*RUNNING, exited(1), exited(2, -9), lost_one(), recovers=True)
    assert round.state is State.LEAVING


def stands(rank: int, mark: str, number: int = 9) -> Reported:
    return reported(rank, WaitsInCollective(number=number, mark=mark, where=f"in {mark}"))


def test_those_that_wait_in_different_collectives_are_told_where_each_is() -> None:
    round, actions = walk(*RUNNING, stands(0, "a"))
    assert actions == ()
    round, actions = step(round, stands(1, "b"))
    assert actions == (AwaitEnds(seconds=END_SECONDS),)
    round, actions = step(round, stands(2, "a"))
    assert actions == ()
    places = {"worker:0": "in a", "worker:1": "in b", "worker:2": "in a"}
    round, actions = step(round, EndsAwaited())
    assert actions == (Parted(round=0, places=places),)
    assert (round.state, round.failures) == (State.RUNNING, ())


def test_who_waits_for_a_slow_one_has_not_parted() -> None:
    """All come to the same place, one after the other; or one has never waited there."""
    round, actions = walk(*RUNNING, stands(0, "a"), stands(1, "a"), stands(2, "b", 10))
    assert actions == ()
    assert step(round, EndsAwaited()) == (round, ())


def lost_one():
    event = raised(0, "UnavailableError")
    return replace(event, time=1.0, report=replace(event.report, where="train.py:7"))
