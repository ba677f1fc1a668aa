"""How many successors a job has, where they start, and when they are taken in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.control.in_place import InPlace, Waiting, next_round
from tfrun.control.placement import Plan, Site, make_plan
from tfrun.control.successors import Successors, due, wanted
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts

SITES = [Site(agent=name, host=name, slots=slots) for name, slots in (("a", 2), ("b", 2))]
NONE = Successors(limit=3)


def spec(workers: str = "4", spares: int = 0) -> JobSpec:
    wanted = WorkerRange.parse(workers)
    program = Program(target="t.py")
    timeouts = Timeouts(settle=1.0)
    return JobSpec(
        program=program, run_dir="/run", workers=wanted, spares=spares, timeouts=timeouts
    )


def left(job: JobSpec, *agents: str) -> Plan:
    """The plan of those that are left."""
    stay = [
        Waiting(name=f"worker:{rank}", agent=agent, port=1, stayed=True)
        for rank, agent in enumerate(agents)
    ]
    found = next_round(job, make_plan(job, SITES), stay, [], leaving=(), there="ab", more=True)
    assert isinstance(found, InPlace)
    return found.plan


def some(*agents: str, ready: int = 0, known: Successors = NONE, began: float = 0.0) -> Successors:
    """Successors on these machines, of which the first ones are ready."""
    for number, agent in enumerate(agents):
        known, one = known.started(agent, "worker:3", 0, began)
        if number < ready:
            known = known.is_ready(one.name, 9000 + number, began + 5.0)
    return known


@pytest.mark.parametrize(
    ("workers", "spares", "here", "there", "known", "expected"),
    [
        ("4", 0, "aabb", "ab", "", ""),
        ("4", 0, "abb", "ab", "", "a"),
        ("4", 0, "b", "ab", "", "aab"),
        ("4", 0, "abb", "ab", "a", ""),
        ("4", 0, "aa", "a", "", ""),  # the other machine is gone
        ("4", 0, "aa", "ab", "", "bb"),
        ("4", 1, "aabb", "ab", "", "a"),
        ("4", 2, "aabb", "ab", "", "ab"),
        ("4", 1, "aabb", "ab", "a", ""),
        ("4", 1, "abb", "ab", "", "aa"),
        ("4", 1, "abb", "ab", "a", "a"),
        ("4", 1, "aa", "a", "", "a"),
        ("1:3", 0, "a", "ab", "", "ab"),
        ("1:2", 0, "b", "ab", "", "a"),
        ("4", 3, "abb", "", "", ""),
    ],
)
def test_as_many_as_are_missing_and_the_spares(
    workers: str, spares: int, here: str, there: str, known: str, expected: str
) -> None:
    job = spec(workers, spares)
    found = wanted(job, left(job, *here), set(there), some(*known), 0.0)
    assert sorted(agent for agent, _ in found) == sorted(expected)
    high = job.workers.high
    assert all(0 <= int(task.removeprefix("worker:")) < high for _, task in found)


def test_they_are_named_after_the_places_that_are_free() -> None:
    found = wanted(spec(), left(spec(), "a", "b"), {"a", "b"}, NONE, 0.0)
    assert found == [("a", "worker:2"), ("b", "worker:3")]


def test_they_are_taken_in_together_where_that_takes_no_time() -> None:
    job = spec()
    plan = left(job, "a", "b")
    given = {"leaving": (), "there": "ab", "now": 5.5}
    assert due(job, plan, some("a", "b"), **given) == set()
    assert due(job, plan, some("a", "b", ready=2), **given) == {"a", "b"}
    one = some("a", "b", ready=1)
    assert due(job, plan, one, **given) == set()
    assert due(job, plan, one, **{**given, "now": 6.5}) == {"a"}
    assert due(job, plan, some("a", ready=1), **given) == {"a"}
    assert due(job, plan, some("a", ready=1), **{**given, "leaving": {"a"}, "now": 9.0}) == set()
    assert due(job, left(job, *"aabb"), some("a", ready=1), **given) == set()
    # A spare on a full machine waits where another one has room.
    assert due(job, left(job, *"aab"), some("a", ready=1), **given) == set()
    alone = {**given, "there": "a"}
    assert due(job, left(job, *"aa"), some("a", ready=1), **alone) == {"a"}
    assert due(spec("2:4"), left(job, *"aa"), some("a", ready=1), **alone) == set()


def test_what_fails_again_and_again_is_given_up() -> None:
    known, job = replace(NONE, limit=1), spec()
    plan = left(job, *"abb")
    for failed in (1, 2):
        assert not known.given_up
        known = some("a", known=known)
        known = known.ended(list(known.each))
        assert known.failed == failed
    assert known.given_up and wanted(job, plan, {"a", "b"}, known, 0.0) == []
    assert not known.afresh().given_up
    names = list(some("a", known=known).each)
    assert not some("a", known=known).taken(names).given_up
    assert known.taken([]).given_up


def test_names_are_given_once() -> None:
    known = some("a", "b")
    known = some("a", known=known.ended(list(known.each)))
    assert list(known.each) == ["successor:2"]


def test_those_of_another_call_and_those_that_take_too_long_are_late() -> None:
    known = some("a", "b", ready=1)
    assert known.late(10.0, 20.0) == [] and known.overtaken(0) == []
    assert known.overtaken(1) == ["successor:0", "successor:1"]
    assert known.late(30.0, 20.0) == ["successor:1"]  # the other one is ready


def test_what_a_short_fit_overtakes_is_no_failure_but_the_next_one_waits() -> None:
    job, plan = spec(), left(spec(), *"aab")
    for _ in range(5):  # many short fits
        known = some("b", began=100.0).without_overtaken(1, 3.0)
        assert (known.failed, known.patience, known.each) == (0, 3.0, {})
    for in_call, agents in ((0.0, []), (2.9, []), (3.0, ["b"])):
        found = wanted(job, plan, {"a", "b"}, known, in_call)
        assert [agent for agent, _ in found] == agents
    ready = some("b", ready=1, began=100.0).without_overtaken(1, 900.0)
    assert ready.patience == 0.0  # such a `fit` is long enough
    assert known.without_overtaken(1, 200.0).patience == 3.0  # nobody was there
    again = some("b", known=known)
    assert again.taken(list(again.each)).patience == 0.0


def test_those_that_are_ready_first_come_first() -> None:
    known = some("a", "b")
    known = known.is_ready("successor:1", 9001, 3.0).is_ready("successor:0", 9000, 4.0)
    assert [one.name for one in known.waiting] == ["successor:1", "successor:0"]
    assert known.waiting_for(known.each["successor:0"].call) == known.waiting
    assert not known.waiting_for(known.each["successor:0"].call + 1)
    assert known.is_ready("successor:7", 1, 1.0) == known
    assert known.here(["b"]) == ["successor:1"] and not known.rehearsing
