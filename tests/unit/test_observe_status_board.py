"""The lines that show a job on a terminal: calm, and no more of them than there is room for."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tfrun.observe.job_view import reduce
from tfrun.observe.status_board import board

WORKERS = 24


def status(slow: int | None = None, dead: int | None = None, shift: float = 0.0) -> dict[str, Any]:
    """A job of many workers in its first epoch."""
    step = {"epoch": 0, "in_epoch": 30, "step": 30, "steps": 30, "seconds": 3.0}
    split = {"input": 0.01, "compute": 0.06, "communication": 0.02, "other": 0.01}
    logs = {"loss": 0.25, "accuracy": 0.9, "a_metric_with_a_long_name": 1.0, "another": 2.0}
    fit = {"kind": "fit_begin", "epochs": 20, "steps": 600}
    batch = {"kind": "training", "global_batch": 64}
    events: list[dict[str, Any]] = [
        {"event": "job", "name": "train", "workers": {"low": 2, "high": WORKERS}},
        {"event": "agent_joined", "agent": "here", "host": "a-host-with-a-name.example.org"},
        {"event": "round", "number": 0, "state": "running"},
    ]
    for rank in range(WORKERS):
        task = {"task": f"worker:{rank}"}
        started = {"pid": rank, "round": 0, "agent": "here"}
        events.append({"event": "worker_started", **task, **started})
        events.append(
            {"event": "worker_report", **task, "report": {"kind": "first_step", "step": 1}}
        )
    for report in (fit, batch):
        events.append({"event": "worker_report", "task": "worker:0", "report": report})
    own = [100 + 3 * (rank * 7 % 5) + shift * rank for rank in range(WORKERS)]
    more = {"step_seconds": 0.1, "split": split, "logs": logs, "round": 0, "workers": WORKERS}
    events.append({"event": "progress", **step, **more, "tasks": {"own_ms": own, "step_ms": own}})
    if slow is not None:
        seconds = {"own_seconds": 0.164, "usual_seconds": 0.08, "factor": 2.0}
        events.append(
            {"event": "straggler", "task": f"worker:{slow}", "slow_at": "compute", **seconds}
        )
    if dead is not None:
        ended = {"code": -9, "status": "killed by SIGKILL (signal 9)"}
        events.append({"event": "worker_exited", "task": f"worker:{dead}", **ended})
    return reduce([{"time": 1.0, **event} for event in events], "run").to_json(1.0)


def drawn(width: int, height: int | None, now: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=100)
    console.print(board(now, workers=8, height=height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("height", [5, 11, 14, 27])
def test_no_more_lines_than_there_is_room_for(width: int, height: int) -> None:
    lines = drawn(width, height, status(slow=17, dead=3))
    assert len(lines) <= max(height, 6)
    assert all(len(line) <= width for line in lines)
    assert "23 of 24 workers up" in lines[0]
    assert "step 30/600" in lines[1] and "left" in lines[1]  # in one line


def test_those_that_stand_out_come_first_and_the_others_stay_where_they_are() -> None:
    def names(now: dict[str, Any]) -> list[str]:
        return [line[:9].strip() for line in drawn(80, 27, now) if line.startswith("worker ")][1:]

    calm = [f"worker {rank}" for rank in range(8)]
    assert names(status())[-8:] == names(status(shift=-1.0))[-8:] == calm
    found = names(status(slow=17, dead=3))
    assert found[-8:-5] == ["worker 3", "worker 17", "worker 0"]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"starting": 1, "ready": 0}, " · 1 successor starting · "),
        ({"starting": 0, "ready": 2}, " · 2 successors ready · "),
        ({"starting": 1, "ready": 2}, " · 1 successor starting, 2 ready · "),
        ({"starting": 0, "ready": 0}, ""),
    ],
)
def test_it_says_who_is_to_take_a_place(found: dict[str, int], says: str) -> None:
    head = drawn(200, None, {**status(), "successors": found, "seconds": 9.0})[0]
    assert says in head and ("successor" in head) == bool(says)
    over = {**status(), "successors": found, "ended": 9.0}
    assert "successor" not in drawn(200, None, over)[0]


def test_drawn_once_it_is_in_full() -> None:
    now = status(slow=17)
    once = "\n".join(drawn(80, None, now))
    assert "worker 17 is slow (compute): 2.0 times the others" in once
    assert "…" not in once.replace("… 16 more", "")
