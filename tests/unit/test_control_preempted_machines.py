"""Machines are preempted: all of them, or one; can the others go on, and when may it go."""

from __future__ import annotations

import pytest

from tfrun.control.placement import Site, make_plan
from tfrun.control.preempted_machines import (
    ONE_REQUEST_SECONDS,
    asked_to_end,
    goes_on_without,
    may_leave,
)
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import Interrupt, Preempt
from tfrun.job.reports import Placed, Resumed, SnapshotTaken
from tfrun.job.restart_policy import Restarts
from tfrun.job.spec import JobSpec, Program, WorkerRange

SITES = [Site(agent=name, host=name, slots=slots) for name, slots in (("a", 2), ("b", 1), ("c", 1))]


def spec(workers: str, **changes: int) -> JobSpec:
    wanted = WorkerRange.parse(workers)
    return JobSpec(program=Program(target="t.py"), run_dir="/run", workers=wanted, **changes)


@pytest.mark.parametrize(
    ("workers", "there", "machines", "goes_on"),
    [
        ("1:4", "abc", "a", True),
        ("3:4", "abc", "b", True),
        ("3:4", "abc", "a", False),
        ("3:4", "abc", "bc", False),
        ("1:4", "abc", "abc", False),  # all of them
        ("4", "abc", "b", False),
        ("2", "abc", "a", True),  # the others have room for it
        ("1:4", "a", "a", False),
        ("2:4", "ab", "b", True),
    ],
)
def test_which_machines_a_job_goes_on_without(
    workers: str, there: str, machines: str, *, goes_on: bool
) -> None:
    stated = spec(workers)
    assert goes_on_without(stated, make_plan(stated, SITES), there, machines) is goes_on


def test_a_job_that_does_not_recover_does_not_go_on() -> None:
    for stated in (spec("1:4", max_restarts=0), spec("1:3", ps=1)):
        assert not goes_on_without(stated, make_plan(stated, SITES), "abc", "b")


def test_a_machine_may_go_when_another_one_has_what_it_has() -> None:
    assert may_leave("b", "abc", {}, None) == {"b"}  # there is nothing yet
    assert may_leave("b", "abc", {"a": (0, 7), "b": (0, 7)}, (0, 7)) == {"b"}
    assert may_leave("b", "abc", {"a": (0, 6), "b": (0, 7)}, (0, 7)) == frozenset()
    assert may_leave("bc", "abc", {"b": (0, 7), "c": (0, 7)}, (0, 7)) == frozenset()
    assert may_leave("b", "bc", {"a": (0, 7), "b": (0, 7)}, (0, 7)) == frozenset()  # a is gone


def snapshot(step: int, kind: type[Placed] = SnapshotTaken) -> Placed:
    return kind(key=[0, 0, step], step=step)


def test_who_has_the_newest_state() -> None:
    state = Recovery(restarts=Restarts())
    assert state.holder("abc") is None
    state = state.reported(snapshot(7), "b").reported(snapshot(8), "a").reported(snapshot(5), "a")
    assert (state.holders, state.holder("abc")) == ({"a": (0, 8), "b": (0, 7)}, "a")
    assert (state.holder("bc"), state.holder("c")) == ("b", None)
    # Who goes on from a state has it: it was passed on.
    state = state.reported(snapshot(8, Resumed), "c")
    assert (state.holder("abc", rather="c"), state.holder("abc", rather="b")) == ("c", "a")
    assert state.lost("a").holder("abc") == "c"


def test_a_machine_that_leaves_is_no_failure() -> None:
    state = Recovery(restarts=Restarts()).reported(snapshot(1203), "a").noticed(1.0)
    state = state.after_regroup((), {"node2"})
    assert (state.restarts.total, state.kind) == (0, "machine_preempted")
    state = state.reported(snapshot(1203, Resumed), "a")
    assert state.sentence(2, 1.3) == (
        "node2 is being preempted; resumed at step 1,203 with 2 workers after 1.3 s"
    )
    assert state.record(1.3)["preempted"] == ["node2"]
    assert state.mended.kind == "recovered" and not state.mended.gone
    two = state.told.after_regroup({"d"}, {"b", "c"})
    assert two.how == ("b and c are being preempted", "d joined")


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_person_ends_the_job_at_once(name: str) -> None:
    assert asked_to_end(name, None) == asked_to_end(name, 9.0) == Interrupt(signal=name)


def test_the_first_sigterm_wants_the_machine_and_a_second_one_insists() -> None:
    assert asked_to_end("SIGTERM", None) == Preempt()
    # One request, that came as two signals.
    assert asked_to_end("SIGTERM", ONE_REQUEST_SECONDS / 2) is None
    assert asked_to_end("SIGTERM", ONE_REQUEST_SECONDS) == Interrupt(signal="SIGTERM")
