"""Very many workers and steps, as numbers: memory stays bounded, a restart loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulated_job import SLOW, make_run, report
from tfrun.observe.events import EventLog
from tfrun.observe.monitor import Monitor, view_of

HELD = ("name", "started", "round", "rounds", "series", "epochs", "events", "stragglers")


def live(run: Path, workers: int) -> tuple[Monitor, EventLog]:
    events = EventLog(run / "events.jsonl")
    return Monitor(events, run), events


def shown(view: dict[str, Any]) -> dict[str, Any]:
    """What a controller that starts again has to know as well."""
    return json.loads(json.dumps({name: view[name] for name in HELD}))


def test_a_hundred_thousand_steps_stay_small(tmp_path: Path) -> None:
    run, workers = tmp_path / "run", 8
    make_run(run, workers, 100_000)
    view = view_of(run).to_json(0.0, heat=True)
    assert view["training"]["step"] >= 100_000
    assert 128 <= len(view["series"]["time"]) <= 512
    assert all(len(v) == len(view["series"]["time"]) for v in view["series"]["logs"].values())
    assert 32 <= len(view["heat"]["time"]) <= 128
    assert len(view["heat"]["own"]) == workers
    # The curve begins where the training began, and ends where it is.
    steps = [step for step in view["series"]["step"] if step is not None]
    assert steps == sorted(steps) and steps[0] < 1000 and steps[-1] > 99_000
    assert len(json.dumps(view)) < 200_000
    assert (run / "events.jsonl").stat().st_size < 8 << 20


def test_a_controller_that_starts_again_shows_the_same(tmp_path: Path) -> None:
    run, workers, step = tmp_path / "run", 40, 500
    make_run(run, workers, step)
    monitor, events = live(run, workers)
    told = []
    for _ in range(8):
        step += 10
        for rank in range(workers):
            told.append(monitor.reported(f"worker:{rank}", report(rank, step, 10)))
    events.add("round", number=0, state="leaving")
    named = [text for text in told if text]
    assert len(named) == 1 and f"worker {SLOW} slows the others down" in named[0]
    before = monitor.view()
    events.close()
    again, events = live(run, workers)
    assert shown(again.view()) == shown(before)
    assert again.view()["training"]["step"] == step == before["training"]["step"]
    events.close()
