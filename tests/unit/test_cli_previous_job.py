"""What a person is told before a job goes on where another one has left off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrun.checkpoint.atomic_store import Store
from tfrun.cli.previous_job import batch_times, last_step, newest_step, notices, told
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec, Program
from tfrun.observe.events import EventLog

GOING_ON = (
    "continuing from the last checkpoint here, of step 1,100; --fresh starts from the beginning"
)

CAME_TO = "the previous job had reached step"


@pytest.mark.parametrize(
    ("step", "came_to", "goes_on", "lines"),
    [
        (1100, None, True, [GOING_ON]),
        (1100, 1100, True, [GOING_ON]),
        (1100, 1155, True, [GOING_ON, f"{CAME_TO} 1,155: 55 steps are done again"]),
        (1100, 1101, True, [GOING_ON, f"{CAME_TO} 1,101: 1 step is done again"]),
        (1100, 900, True, [GOING_ON]),
        (None, 155, True, [GOING_ON.replace(", of step 1,100", "")]),
        (
            *(None, 155, False),
            [
                "the previous job had reached step 155 and left no checkpoint here: this one "
                "starts from the beginning"
            ],
        ),
        (None, None, False, []),
    ],
)  # fmt: skip
def test_what_is_told(
    step: int | None, came_to: int | None, goes_on: bool, lines: list[str]
) -> None:
    assert told(step, came_to, goes_on=goes_on) == lines


def report(kind: str, step: int) -> dict[str, Any]:
    return {"event": "worker_report", "report": {"kind": kind, "step": step}}


JOB, FINISHED = {"event": "job"}, {"event": "job_ended", "state": "finished"}
FAILED = {"event": "job_ended", "state": "failed"}


@pytest.mark.parametrize(
    ("events", "step"),
    [
        ([], None),
        ([JOB], None),
        ([JOB, report("first_step", 1), {"event": "progress", "step": 155}], 155),  # kill -9
        ([JOB, report("first_step", 1), {"event": "progress", "step": 155}, FAILED], 155),
        ([JOB, {"event": "progress", "step": 155}, FINISHED], None),
        ([JOB, {"event": "progress", "step": 155}, JOB], None),
        ([{"event": "progress", "step": 155}, {"event": "recovered", "step": 37}], 37),
        ([report("ended_at", 58), report("notice", 99), {"event": "progress", "step": "7"}], 58),
        ([{"event": "progress", "step": 9}, {"event": "memory_saved", "step": -1}], 9),
    ],
)
def test_the_last_step_of_the_last_job(events: list[dict[str, Any]], step: int | None) -> None:
    assert last_step(events) == step


def test_a_run_directory_of_a_job_that_was_killed(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    events.add("job", name="train")
    events.add("progress", step=155)
    events.close()
    folder = tmp_path / "checkpoints"
    assert "left no checkpoint" in notices(tmp_path, folder, goes_on=False)[0]
    store = Store(folder, 5)
    for step in (50, 100):
        store.write(step, {}, {"w": np.zeros(3)})
    store.close()
    assert newest_step(folder) == 100
    first, second = notices(tmp_path, folder, goes_on=True)
    assert "of step 100;" in first and "55 steps are done again" in second
    for damaged in folder.glob("ckpt-*/manifest.json"):
        damaged.write_text("{}")
    assert notices(tmp_path, folder, goes_on=True) == []


def test_checkpoints_none_of_which_can_be_read_are_not_gone_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    store = Store(folder, 5)
    for step in (50, 100):
        store.write(step, {}, {"w": np.arange(3.0)})
    store.close()
    for step, whole in ((100, 50), (50, None)):
        path = folder / f"ckpt-{step}" / "extra.safetensors"
        path.write_bytes(bytes(path.stat().st_size))
        assert newest_step(folder) == whole
    assert notices(tmp_path, folder, goes_on=True) == []


def begins(times: int, *stated: str) -> JobSpec:
    return JobSpec(program=Program(target="train.py"), batch_times=times, stated=stated)


@pytest.mark.parametrize(
    ("last", "times", "found"),
    [
        ({}, 4, 4),
        ({"batch_times": 1}, 1, 1),
        ({"batch_times": 4}, 4, 4),
        ({"batch_times": "x"}, 2, 2),
    ],
)
def test_a_batch_that_stays_is_nothing_to_tell(last: dict, times: int, found: int) -> None:
    assert batch_times(begins(times, "scale_batch"), last) == (found, [])


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_that_goes_on_keeps_its_batch(times: int) -> None:
    found, (text,) = batch_times(begins(times, "scale_batch"), {"batch_times": 4})
    assert found == 4 and text.startswith("the batch stays 4 times the script's")


def test_a_batch_is_not_enlarged_on_the_way() -> None:
    with pytest.raises(UsageError, match="TFRUN-107: --scale-batch enlarges the batch, but"):
        batch_times(begins(2, "scale_batch"), {"batch_times": 1})
    assert batch_times(begins(2), {"batch_times": 1}) == (1, [])  # a variable: for all jobs
