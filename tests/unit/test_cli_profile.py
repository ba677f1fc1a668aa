"""Which steps `tfrun profile` asks for, and what it makes of the answers."""

from __future__ import annotations

import json
from pathlib import Path

from tfrun.cli.profile import Answers
from tfrun.job import profile_request


def line(task: str, problem: str = "", name: str = "mine", first: int = 100) -> str:
    report = {"kind": "profiled", "name": name, "first": first, "last": 120, "problem": problem}
    return json.dumps({"event": "worker_report", "task": task, "report": report})


def test_the_first_step_is_far_enough_for_all_to_hear_of_it() -> None:
    assert profile_request.first_step(10, None) == 15
    assert profile_request.first_step(10, 5.0) == 15
    assert profile_request.first_step(10, 0.1) == 30


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert profile_request.read(tmp_path) is None
    request = profile_request.Request(first=3, steps=2, folder="/f", name="n")
    profile_request.write(tmp_path, request)
    assert profile_request.read(tmp_path) == request
    assert request.traces == Path("/f/plugins/profile/n")
    (tmp_path / profile_request.NAME).write_text('{"first": 3}')
    assert profile_request.read(tmp_path) is None
    profile_request.write(tmp_path / "missing", request)  # a machine without memory keeps training


def test_answers_of_all_workers() -> None:
    answers = Answers("mine", ["worker:0", "worker:1"])
    answers.take([line("worker:0"), line("worker:1", name="another"), '{"event": "progress"}'])
    assert not answers.are_complete
    answers.take([line("worker:1", first=101)])
    assert answers.are_complete and answers.are_good
    assert list(answers.lines()) == ["traces of 2 workers, steps 102 to 120"]


def test_a_worker_that_could_not_and_one_that_is_gone() -> None:
    answers = Answers("mine", ["worker:0", "worker:1", "worker:2"])
    answers.take([line("worker:0"), line("worker:1", "already profiling")])
    answers.take([json.dumps({"event": "round", "state": "leaving"})])
    assert answers.are_complete and not answers.are_good
    assert list(answers.lines()) == [
        "traces of 1 worker, steps 101 to 120",
        "worker 1: no trace: already profiling",
        "worker 2: no trace: it did not get to these steps",
    ]
