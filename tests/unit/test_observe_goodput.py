"""Where a job's time went, from its events."""

from __future__ import annotations

from typing import Any

import pytest

from tfrun.observe.goodput import KINDS, Goodput
from tfrun.observe.job_view import reduce


def event(time: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": time, "event": kind, **fields}


def state(time: float, name: str, number: int = 0) -> dict[str, Any]:
    return event(time, "round", state=name, number=number)


def first_step(time: float) -> dict[str, Any]:
    return event(time, "worker_report", task="worker:0", report={"kind": "first_step", "step": 1})


def progress(time: float, seconds: float, steps: int, number: int = 0, **aside: float):
    return event(time, "progress", round=number, seconds=seconds, steps=steps, aside=aside)


START = [
    event(0.0, "job"),
    state(1.0, "preparing"),
    state(5.0, "running"),
    first_step(10.0),
    progress(10.1, 0.0, 0, tracing=2.0),
]


def parts(events: list[dict[str, Any]], now: float) -> dict[str, float]:
    goodput = Goodput(began=events[0]["time"] if events else now)
    for event in events:
        goodput.add(event)
    found = goodput.to_json(now)
    assert list(found["parts"]) == list(KINDS)
    assert sum(found["parts"].values()) == pytest.approx(found["seconds"])
    assert found["share"] == pytest.approx(
        found["parts"]["training"] / (found["seconds"] or 1), abs=1e-4
    )
    return {kind: seconds for kind, seconds in found["parts"].items() if seconds}


def test_a_job_without_failures():
    events = [
        *START,
        progress(20.0, 9.0, 90, checkpoint=0.5),
        progress(30.0, 8.0, 80, evaluation=2.0),
        state(30.5, "releasing"),
        event(31.0, "job_ended"),
    ]
    assert parts(events, 1000.0) == {
        **{"start": 8.0, "tracing": 2.0, "training": 17.0},
        **{"checkpoint": 0.5, "evaluation": 2.0, "end": 1.0, "other": 0.5},
    }


def test_a_job_that_has_only_begun():
    assert parts(START[:3], 7.0) == {"start": 7.0}
    assert parts([], 7.0) == {}


def test_a_recovery_and_the_steps_that_were_lost():
    events = [
        *START,
        progress(20.0, 10.0, 100),
        state(20.0, "leaving"),
        state(20.2, "ended"),
        state(20.2, "preparing", 1),
        state(20.5, "running", 1),
        first_step(23.0),
        event(23.0, "recovered", seconds=3.0, lost_steps=20),
        progress(23.1, 0.0, 0, number=1, tracing=1.0),
        progress(33.0, 10.0, 100, number=1),
    ]
    # What is traced again is a part of the recovery; 20 of 100 steps took 2 seconds.
    assert parts(events, 33.0) == {
        **{"start": 8.0, "tracing": 2.0, "training": 18.0, "redone": 2.0, "recovery": 3.0},
    }


def test_waiting_for_machines_is_not_recovery():
    events = [
        *START,
        state(20.0, "leaving"),
        state(20.5, "joining", 1),
        state(50.5, "preparing", 1),
        state(51.0, "running", 1),
        event(53.0, "recovered", seconds=33.0, lost_steps=0),
    ]
    found = parts(events, 53.0)
    assert (found["waiting"], found["recovery"]) == (30.0, 3.0)
    # Nobody has come yet.
    found = parts(events[:-3], 40.0)
    assert (found["waiting"], found["recovery"]) == (19.5, 0.5)


def test_only_the_last_job_of_a_directory_counts():
    later = [{**event, "time": event["time"] + 1000} for event in START]
    assert reduce([*START, *later]).goodput.to_json(1011.0)["seconds"] == 11.0
