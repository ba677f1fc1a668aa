"""Wait for a machine, go on without it, take it in: decisions without clocks."""

from __future__ import annotations

import math

import pytest

from tfrun.control.membership import (
    GiveUp,
    StandingBy,
    Wait,
    change,
    decide,
    growth,
    new_round,
    next_plan,
    not_formed,
)
from tfrun.control.placement import Plan, Site, make_plan
from tfrun.control.rounds.model import AgentJoined
from tfrun.control.rounds.state_machine import step
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts

SITES = [Site(agent=name, host=name, slots=1) for name in "abcd"]
TIMES = Timeouts(rejoin_timeout=10.0, settle=2.0, grow_after=5.0)


def spec(workers: str) -> JobSpec:
    return JobSpec(
        program=Program(target="t.py"),
        run_dir="/run",
        workers=WorkerRange.parse(workers),
        timeouts=TIMES,
    )


def plan(workers: str, there: str = "abcd") -> Plan:
    made = next_plan(spec(workers), make_plan(spec(workers), SITES), there)
    assert made is not None
    return made


def verdict(
    workers: str,
    there: str,
    expected: str = "abcd",
    *,
    wanted: str = "abcd",
    waited: float = 0.0,
    quiet: float = math.inf,
):
    return decide(
        spec(workers),
        plan(workers, wanted),
        set(there),
        set(expected),
        waited=waited,
        quiet=quiet,
        patience=TIMES.rejoin_timeout,
    )


def started(result: object) -> str:
    assert isinstance(result, Plan), result
    return "".join(sorted(result.agents))


def test_with_all_there_it_starts() -> None:
    assert started(verdict("4", "abcd")) == "abcd"
    assert started(verdict("2:4", "abcd")) == "abcd"


def test_a_missing_machine_is_waited_for_and_then_done_without() -> None:
    waiting = Wait(missing=("c",), is_enough=True)
    assert verdict("2:4", "abd", waited=9.9) == waiting
    assert started(verdict("2:4", "abd", waited=10.0)) == "abd"


def test_who_comes_may_be_followed_by_others() -> None:
    assert verdict("1:4", "ab", waited=11.0, quiet=1.9) == Wait(missing=("c", "d"), is_enough=True)
    assert started(verdict("1:4", "ab", waited=11.0, quiet=2.0)) == "ab"


def test_one_that_cannot_come_back_is_not_waited_for() -> None:
    assert started(verdict("2:4", "abd", expected="abd")) == "abd"
    assert started(verdict("2:4", "ab", expected="")) == "ab"


def test_below_the_minimum_only_a_return_helps() -> None:
    waiting = Wait(missing=("c", "d"), is_enough=False)
    assert verdict("3:4", "ab", waited=599.0) == waiting
    assert started(verdict("3:4", "abc", waited=599.0)) == "abc"
    assert verdict("4", "abc", waited=599.0) == Wait(missing=("d",), is_enough=False)
    assert isinstance(verdict("3:4", "ab", expected="ab"), GiveUp)
    assert isinstance(verdict("4", "abc", expected=""), GiveUp)
    assert isinstance(verdict("1:4", "", expected=""), GiveUp)


def test_another_machine_is_as_good() -> None:
    assert started(verdict("2", "ac", wanted="ab")) == "ac"


def test_a_job_that_has_shrunk_does_not_wait_for_what_it_goes_on_without() -> None:
    assert started(verdict("1:4", "ab", wanted="ab")) == "ab"


def test_the_chief_stays_where_it_is_and_newcomers_follow() -> None:
    shrunk = plan("1:4", "bd")
    assert [task.agent for task in shrunk.planned] == ["b", "d"]
    larger = next_plan(spec("1:4"), shrunk, set("abcd"))
    assert larger is not None
    assert [task.agent for task in larger.planned] == ["b", "d", "a", "c"]
    assert change(shrunk, larger) == {
        **{"workers": 4, "before": 2},
        **{"without": [], "joined": ["a", "c"]},
    }
    again = next_plan(spec("1:4"), larger, set("acd"))
    assert again is not None
    assert [task.agent for task in again.planned] == ["d", "a", "c"]


def test_not_more_than_the_maximum() -> None:
    assert len(plan("1:3").tasks) == 3
    shrunk = plan("1:3", "ab")
    larger = next_plan(spec("1:3"), shrunk, set("abcd"))
    assert larger is not None and len(larger.tasks) == 3


def taken_in(stepped: float = 5.0, workers: str = "1:4", **others: StandingBy) -> str:
    running = plan(workers, "ab")
    larger = growth(spec(workers), running, others, stepped=stepped)
    return "".join(sorted(larger.agents - running.agents)) if larger else ""


def ready(seconds: float, losses: int = 0) -> StandingBy:
    return StandingBy(here=seconds + 3.0, ready=seconds, losses=losses)


def test_a_round_is_left_in_peace_at_first() -> None:
    assert taken_in(4.9, c=ready(60.0)) == ""
    assert taken_in(5.0, c=ready(60.0)) == "c"


def test_those_who_come_within_a_moment_are_taken_in_at_once() -> None:
    assert taken_in(c=ready(1.9)) == ""
    assert taken_in(c=ready(2.0), d=ready(1.0)) == ""
    assert taken_in(c=ready(3.0), d=ready(2.0)) == "cd"
    assert taken_in(c=ready(3.0), d=StandingBy(here=2.0)) == ""  # TensorFlow is being imported
    assert taken_in(c=ready(30.0), d=StandingBy(here=20.0)) == "c"


@pytest.mark.parametrize(("losses", "seconds"), [(1, 4.0), (3, 16.0), (8, 512.0), (99, 512.0)])
def test_one_that_comes_and_goes_has_to_stay_longer(losses: int, seconds: float) -> None:
    assert taken_in(c=ready(seconds - 0.1, losses)) == ""
    assert taken_in(c=ready(seconds, losses)) == "c"


def test_a_machine_that_is_not_needed_interrupts_nobody() -> None:
    assert taken_in(workers="1:2", c=ready(60.0)) == ""
    assert taken_in() == ""


def test_the_time_out_says_who_has_not_come_or_not_come_back() -> None:
    said = not_formed(new_round(spec("4"), plan("4"), 0), {"b": "no route"}, 1.0)
    assert (said.code, said.task) == ("TFRUN-303", "a, b, c, d")
    assert said.tail == "the cluster did not form in 600 s: waiting for a, b (no route), c, d"
    later = new_round(spec("2"), plan("2", "ab"), 3)
    later, _ = step(later, AgentJoined(agent="a"))
    assert not_formed(later, {"b": "no route"}, 1.0).tail == "b (no route) did not return in 600 s"
    later, _ = step(later, AgentJoined(agent="b"))
    assert not_formed(later, {"b": "old"}, 1.0).tail.endswith("600 s: waiting for a, b")
