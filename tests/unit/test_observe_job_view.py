"""The status of a job from its events: the same live and afterwards."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tfrun.job.reports import StepsMade, decode
from tfrun.observe.events import EventLog, read_events
from tfrun.observe.job_view import reduce
from tfrun.observe.monitor import Monitor, view_of

WORKERS = ("worker:0", "worker:1", "worker:2")


def report(
    step: int, *, steps: int = 10, compute: float = 0.01, logs: Any = None
) -> dict[str, Any]:
    waits = max(0.0, 0.02 - compute)
    split = [steps * part for part in (0.002, compute, waits, 0.001)]
    place = {"epoch": step // 100, "in_epoch": step % 100, "step": step}
    more = {"rss": 100 << 20, "cpu": 0.5, "split": split, **({"logs": logs} if logs else {})}
    return {"kind": "progress", **place, "steps": steps, "seconds": sum(split), **more}


def said_by(values: dict[str, Any]) -> StepsMade:
    """As it arrives."""
    found = decode(json.loads(json.dumps(values)))
    assert isinstance(found, StepsMade)
    return found


def begun(folder: Path) -> tuple[EventLog, Monitor]:
    events = EventLog(folder / "events.jsonl")
    monitor = Monitor(events, folder)
    low_high = {"low": 3, "high": 3}
    events.add("job", name="train", script="train.py", workers=low_high, started=time.time())
    events.add("agent_joined", agent="local", host="here", version="1")
    begin(events, 0)
    fit = {"kind": "fit_begin", "epochs": 2, "steps": 100}
    training = {"kind": "training", "global_batch": 30, "workers": 3}
    for chief in (fit, training):
        events.add("worker_report", task="worker:0", report=chief)
    return events, monitor


def begin(events: EventLog, number: int) -> None:
    for state in ("preparing", "running"):
        events.add("round", number=number, state=state)
    for pid, task in enumerate(WORKERS):
        events.add("worker_started", task=task, agent="local", pid=pid, round=number)
    for task in WORKERS:
        said = {"kind": "first_step", "step": 1}
        events.add("worker_report", task=task, report=said)


def trained(monitor: Monitor, steps: range, slow: str = "") -> list[str]:
    said = []
    for step in steps:
        for task in WORKERS:
            logs = {"loss": 1.0 / step, "auc": "NaN"} if task == "worker:0" else None
            one = report(step, compute=0.05 if task == slow else 0.01, logs=logs)
            said.append(monitor.reported(task, said_by(one)))
    return [text for text in said if text]


def test_live_it_has_what_the_workers_have_just_said(tmp_path: Path):
    events, monitor = begun(tmp_path)
    trained(monitor, range(10, 60, 10))
    late = {"kind": "staleness", "histogram": [40, 9, 0, 1, 0, 0]}
    events.add("worker_report", task="worker:0", report=late)
    view = monitor.view(heat=True)
    assert view["training"]["staleness"] == [40, 9, 0, 1]
    assert (view["state"], view["live"], view["name"]) == ("training", True, "train")
    assert view["workers"] == {"up": 3, "down": 0, "low": 3, "high": 3}
    training = view["training"]
    assert (training["step"], training["epochs"], training["steps_per_epoch"]) == (50, 2, 100)
    assert training["done"] == pytest.approx(0.25)
    assert training["logs"] == {"loss": 0.02, "auc": "NaN"}
    assert training["step_seconds"] == pytest.approx(0.023)
    assert training["samples_per_second"] == pytest.approx(30 / 0.023, rel=0.01)
    assert training["split"]["compute"] == pytest.approx(0.01)
    assert [task["own_seconds"] for task in view["tasks"]] == [pytest.approx(0.013)] * 3
    assert view["tasks"][1]["rss_bytes"] == 100 << 20
    json.dumps(view, allow_nan=False)


def test_afterwards_the_events_tell_the_same(tmp_path: Path):
    events, monitor = begun(tmp_path)
    monitor._told = 0.0  # the next report is summed up
    trained(monitor, range(10, 110, 10))
    events.add("round", number=0, state="releasing")
    end = {"state": "finished", "exit_code": 0, "restarts": 0, "failure": None}
    events.add("job_ended", **end)
    live, after = monitor.view(heat=True), view_of(tmp_path).to_json(time.time(), heat=True)
    assert (after["live"], after["state"], after["exit_code"]) == (False, "finished", 0)
    for key in ("training", "series", "heat", "rounds", "events", "goodput", "epochs"):
        assert after[key] == live[key], key
    for name in ("task", "pid", "state", "step", "own_seconds", "step_seconds", "rss_bytes"):
        assert [task[name] for task in after["tasks"]] == [task[name] for task in live["tasks"]]


def test_a_straggler_is_named_once_in_the_events_and_the_view(tmp_path: Path):
    _, monitor = begun(tmp_path)
    (said,) = trained(monitor, range(10, 100, 10), slow="worker:1")
    assert said.startswith("worker 1 slows the others down: its own computing takes the time")
    kinds = [e["event"] for e in read_events(tmp_path / "events.jsonl")]
    assert kinds.count("straggler") == 1
    view = monitor.view()
    assert [(s["task"], s["slow_at"], s["until"]) for s in view["stragglers"]] == [
        ("worker:1", "compute", None)
    ]
    assert [task["slow_at"] for task in view["tasks"]] == [None, "compute", None]
    trained(monitor, range(100, 200, 10))
    assert monitor.view()["stragglers"][0]["until"] is not None


def test_a_round_that_fails_and_the_next_one(tmp_path: Path):
    events, monitor = begun(tmp_path)
    trained(monitor, range(10, 60, 10))
    events.add("worker_exited", task="worker:2", status="killed by SIGKILL", code=-9)
    ended = {"status": "killed by SIGKILL", "code": -9, "requested": True}
    events.add("worker_exited", task="worker:0", **ended)
    told = {task["task"]: task["status"] for task in monitor.view()["tasks"]}
    # Whoever was only ended because of it is not another victim.
    assert (told["worker:2"], told["worker:0"]) == ("killed by SIGKILL", "stopped")
    assert monitor.view()["events"][-1]["text"] == "worker 0 was stopped"
    events.add("round", number=0, state="leaving")
    assert monitor.view()["state"] == "recovering"
    assert monitor.view()["workers"]["down"] == 2
    events.add("round", number=0, state="ended")
    events.add("failure", task="worker:2", how="worker 2 was killed by SIGKILL", cause="killed")
    begin(events, 1)
    events.add("recovered", round=1, step=50, lost_steps=0, seconds=1.5, restarts=1)
    view = monitor.view()
    assert (view["state"], view["restarts"], view["round"]["number"]) == ("training", 1, 1)
    assert view["rounds"][0]["how"] == "worker 2 was killed by SIGKILL"
    assert [r["seconds"] for r in view["recoveries"]] == [1.5]
    levels = {e["text"]: e["level"] for e in view["events"]}
    assert levels["worker 2: killed by SIGKILL"] == "error"
    assert levels["recovered at step 50 after 1.5 s"] == "info"


def successor(events: EventLog, state: str, **more: Any) -> None:
    one = {"successor": "successor:0", "agent": "local", "task": "worker:2", "state": state}
    events.add("successor", **one, **more)


def test_rounds_in_place_say_who_has_stayed_and_who_is_to_come(tmp_path: Path):
    events, monitor = begun(tmp_path)
    trained(monitor, range(10, 60, 10))
    none = {"starting": 0, "ready": 0, "given_up": False, "each": []}
    assert monitor.view()["successors"] == none
    for number in range(1, 203):  # more than are shown in full
        for state in ("leaving", "ended"):
            events.add("round", number=number - 1, state=state)
        events.add("round", number=number, state="running")
        for rank, pid in enumerate((1, 2 if number < 202 else 77)):  # the chief has died
            task = {"task": f"worker:{rank}", "agent": "local", "pid": pid}
            events.add("worker_started", **task, round=number)
        happened = {"step": 50, "lost_steps": 0, "seconds": 0.5, "in_place": True}
        events.add("recovered", round=number, restarts=number, **happened)
    successor(events, "started", pid=99)
    view = monitor.view()
    assert [task["since_round"] for task in view["tasks"]] == [0, 202]
    assert len(view["rounds"]) == len(view["recoveries"]) == 200
    assert all(round["in_place"] for round in view["rounds"])
    assert view["changes"] == {
        **{"recovered": 202, "grown": 0, "machine_preempted": 0, "in_place": 202, "afresh": 0},
        **{"seconds": 101.0, "lost_steps": 0},
    }
    (waiting,) = view["successors"]["each"]
    assert (waiting["task"], waiting["pid"], waiting["state"]) == ("worker:2", 99, "starting")
    successor(events, "ready", seconds=3.0)
    found = monitor.view()["successors"]
    assert (found["starting"], found["ready"], found["each"][0]["pid"]) == (0, 1, 99)
    successor(events, "ended", status="killed by SIGKILL")
    events.add("successors_given_up", failed=4)
    assert monitor.view()["successors"] == {**none, "given_up": True}


def test_a_job_without_an_end_that_nobody_answers_for_is_lost(tmp_path: Path):
    _, monitor = begun(tmp_path)
    trained(monitor, range(10, 30, 10))
    view = view_of(tmp_path)
    assert view.to_json(time.time())["state"] == "lost"
    assert view.to_json(time.time(), runs=True)["state"] == "training"


def test_another_job_in_the_directory_goes_on_with_the_curves(tmp_path: Path):
    events, monitor = begun(tmp_path)
    monitor._told = 0.0
    trained(monitor, range(10, 60, 10))
    events.add("job_ended", state="preempted", exit_code=75, restarts=0, failure=None)
    before = len(monitor.view()["series"]["time"])
    _, again = begun(tmp_path)
    view = again.view()
    assert (view["exit_code"], view["rounds"][0]["number"], len(view["rounds"])) == (None, 0, 1)
    assert len(view["series"]["time"]) == before > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "many"},
        {"split": [1.0]},
        {"split": [None] * 4, "seconds": None},
        {"epoch": float("nan")},
        {"logs": ["loss"], "aside": 3, "rss": "much", "cpu": []},
    ],
    ids=str,
)
def test_what_a_users_process_invents_harms_nothing(wrong: dict[str, Any], tmp_path: Path):
    _, monitor = begun(tmp_path)
    with contextlib.suppress(ValueError):  # then it is none
        monitor.reported("worker:0", said_by({**report(10), **wrong}))
    monitor.reported("worker:77", said_by(report(10)))
    json.dumps(monitor.view(), allow_nan=False)


@pytest.mark.parametrize("kind", ["checkpoint", "saved", "job_saved"])
def test_the_newest_checkpoint_is_known_however_it_came_about(kind: str):
    said = {"task": "worker:0", "report": {"kind": kind, "step": 8}}
    events = [{"time": 1.0, "event": "job"}, {"time": 9.0, "event": "worker_report", **said}]
    assert reduce(events).to_json(9.0)["checkpoint"] == {"step": 8, "time": 9.0}


def test_events_of_another_version_are_left_out():
    odd = [{"time": 1.0, "event": name} for name in ("round", "progress", "worker_exited", "new")]
    view = reduce([{"event": "job"}, {"time": "now", "event": "job"}, *odd])
    json.dumps(view.to_json(2.0), allow_nan=False)


def test_a_day_is_some_thousands_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, monitor = begun(tmp_path)
    clock = [time.time()]
    monkeypatch.setattr("tfrun.observe.monitor.time", type("T", (), {"time": lambda: clock[0]}))
    step = 0
    for every, seconds in ((1, 3600), (5, 86_400)):
        while clock[0] - monitor._began < seconds:
            clock[0] += every
            step += 10
            monitor.reported("worker:0", said_by(report(step)))
    found = [e for e in read_events(tmp_path / "events.jsonl") if e["event"] == "progress"]
    assert 1000 < len(found) < 4000
    assert len({e["step"] for e in found}) == len(found)
    # Nothing is lost by writing less often: all steps are in the sums.
    assert sum(e["steps"] for e in found) >= 0.99 * step
