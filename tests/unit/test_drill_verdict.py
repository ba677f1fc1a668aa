"""What a drill reads out of a job's events, and when it says that a promise was broken."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill.fault_events import Lost, WorkerRun
from tfrun.tools.drill.inject import Hit
from tfrun.tools.drill.verdict import EndedRun, Row, judge

WANTED = {0: frozenset({"a"}), 1: frozenset({"b"})}


def report(time: float, kind: str, task: str = "worker:0", **fields: Any) -> dict[str, Any]:
    told = {"kind": kind, **fields}
    return {"time": time, "event": "worker_report", "task": task, "report": told}


def started(time: float, round: int, *pids: int) -> list[dict[str, Any]]:
    return [
        {"time": time, "event": "worker_started", "task": f"worker:{n}", "pid": pid, "round": round}
        for n, pid in enumerate(pids)
    ]


def exited(time: float, task: str, code: int) -> dict[str, Any]:
    return {"time": time, "event": "worker_exited", "task": task, "code": code}


def recovered(time: float, lost: int = 0) -> dict[str, Any]:
    return {"time": time, "event": "recovered", "lost_steps": lost}


# Worker 1 is killed at 10.0, worker 0 keeps its state, and the two go on.
KILLED = [
    *started(1, 0, 100, 101),
    report(2, "first_step", step=1),
    report(5, "snapshot", step=30, key=[0, 0, 30]),  # in the midst of training
    exited(10.1, "worker:1", -9),
    {"time": 10.1, "event": "round", "state": "leaving", "number": 0},
    report(10.2, "snapshot", step=50, key=[0, 1, 10]),
    exited(10.3, "worker:0", 1),
    {"time": 10.3, "event": "failure", "task": "worker:1", "how": "", "cause": "infrastructure"},
    *started(10.5, 1, 200, 201),
    report(11.4, "first_step", step=51),
    recovered(11.4),
    report(12, "first_step", "worker:1", step=51),
    report(15, "snapshot", step=90, key=[1, 0, 0]),
    report(15.5, "fit_end"),
    report(16, "weights", call=0, digest="a"),
    report(20, "weights", call=1, digest="b"),
]
HIT = Hit(time=10.0, victims=(WorkerRun(task="worker:1", pid=101, round=0),))


def without(kind: str, events: list[dict[str, Any]] = KILLED) -> list[dict[str, Any]]:
    def is_it(event: dict[str, Any]) -> bool:
        return kind in (event["event"], event.get("report", {}).get("kind"))

    return [event for event in events if not is_it(event)]


def row(events: list[dict[str, Any]] = KILLED, **changes: Any) -> Row:
    code = changes.pop("code", 0)
    run = EndedRun(run_dir="there", events=events, code=code, timed_out=False, seconds=20)
    given = {"hits": [HIT], "wanted": WANTED, "workers": 2, **changes}
    return judge("kill", run, **given)


def test_what_the_events_say() -> None:
    assert reading.running(KILLED[:2]) == {
        "worker:0": WorkerRun(task="worker:0", pid=100, round=0),
        "worker:1": WorkerRun(task="worker:1", pid=101, round=0),
    }
    assert reading.running(KILLED[:8]) == {}
    assert {w.pid for w in reading.running(KILLED).values()} == {200, 201}
    assert reading.first_step_at(KILLED) == 2
    assert reading.training_seconds(KILLED) == 13.5
    assert reading.training_seconds([*without("fit_end"), report(17, "done")]) == 15
    assert reading.training_seconds([]) == 0
    assert reading.weights(KILLED) == WANTED


def test_who_stays_is_who_it_is_in_the_newest_round() -> None:
    """Worker 0 has died, and worker 1 stays in its process: it is worker 0 from then on."""
    begun = [*started(1, 0, 100, 101), exited(10.1, "worker:0", -9), *started(10.2, 1, 101)]
    assert reading.running(begun) == {"worker:0": WorkerRun(task="worker:0", pid=101, round=1)}
    assert reading.recoveries([recovered(1), {**recovered(2), "in_place": True}]) == (2, 1)
    found = row([*without("recovered"), {**recovered(11.4), "in_place": True}])
    assert (found.recoveries, found.in_place) == (1, 1)


def test_a_kept_promise() -> None:
    found = row()
    assert found.ok and not found.broken
    assert (found.hit, found.noticed, found.first_step) == (1, 0.1, 1.4)
    assert (found.steps_lost, found.steps_lost_exact, found.weights_equal) == (0, True, True)


def test_a_stopped_worker_is_noticed_by_its_peers() -> None:
    events = [event for event in KILLED if event["time"] != 10.1 or event["event"] == "round"]
    assert row(events).noticed == 0.1


@pytest.mark.parametrize(
    ("events", "changes", "broken"),
    [
        (KILLED, {"code": 1}, "the job ended with 1"),
        (without("recovered"), {}, "no new step"),
        (KILLED, {"wanted": {0: frozenset({"a"})}}, "other weights"),
        (KILLED, {"wanted": {**WANTED, 1: frozenset({"c"})}}, "other weights"),
        ([*KILLED, report(21, "weights", call=1, digest="c")], {}, "other weights"),
        (without("weights"), {}, "other weights"),
        ([*without("recovered"), recovered(11.4, lost=3)], {}, "3 steps lost"),
        ([e for e in KILLED if e["time"] != 10.2], {}, "no survivor has kept its state"),
        (KILLED, {"limit": 1.3}, "first new step after more than 1.3 s"),
    ],
)
def test_a_broken_promise(events: list, changes: dict[str, Any], broken: str) -> None:
    found = row(events, **changes)
    assert found.broken == (broken,)
    assert not found.ok


def test_a_limit_that_is_kept() -> None:
    assert row(limit=1.5).ok


def test_nobody_left_to_keep_the_state_breaks_no_promise() -> None:
    both = Hit(time=10.0, victims=(*HIT.victims, WorkerRun(task="worker:0", pid=100, round=0)))
    unkept = [e for e in KILLED if e["time"] != 10.2]
    found = row(unkept, hits=[both])
    assert found.ok and not found.steps_lost_exact
    # One after the other, in one round, is the same.
    other = dataclasses.replace(HIT, victims=both.victims[1:])
    assert row(unkept, hits=[HIT, other], times=2).ok
    # With a third worker there was somebody.
    assert not row(unkept, hits=[both], workers=3).ok


def test_a_fault_that_nothing_came_of_was_no_hit() -> None:
    found = row(without("failure"))
    assert (found.hit, found.broken, found.ok) == (0, (), False)


def test_a_job_that_is_over_too_soon_has_shown_too_little() -> None:
    found = row(times=2)
    assert (found.hit, found.times, found.broken, found.ok) == (1, 2, (), False)


def test_unknown_weights_are_unknown() -> None:
    found = row(without("weights"), wanted={})
    assert found.weights_equal is None and found.ok


def test_a_death_before_the_first_step_of_a_round_loses_nothing() -> None:
    again = [
        *KILLED[:10],
        *started(10.9, 2, 300, 301),
        *KILLED[10:],
    ]
    assert reading.lost_steps(again, [10.0, 10.8]) == Lost(steps=0, exact=True)


def test_the_end_of_a_call_is_kept_without_a_survivor() -> None:
    between = [*started(1, 0, 100), report(2, "first_step", step=1)]
    resumed = [*started(9, 1, 200), report(10, "first_step", step=51), recovered(10)]
    ended = report(5, "snapshot", step=50, key=[1, 0, 0])
    midst = report(5, "snapshot", step=50, key=[0, 3, 2])
    assert reading.lost_steps([*between, ended, *resumed], [8.0]).exact
    assert not reading.lost_steps([*between, midst, *resumed], [8.0]).exact


def test_a_machine_that_returns_costs_no_step():
    told = {"time": 13.0, "event": "regroup", "round": 1, "agents": ["b"]}
    left = report(13.1, "snapshot", step=70, key=[0, 2, 1])
    grown = [*KILLED[:13], *started(13.5, 2, 300, 301), report(14, "first_step", step=71)]
    grown = [*grown, *KILLED[13:]]
    assert reading.lost_steps(grown, [10.0]) == Lost(exact=False)
    both = sorted([*grown, told, left], key=lambda event: event["time"])
    assert reading.lost_steps(both, [10.0]) == Lost()
