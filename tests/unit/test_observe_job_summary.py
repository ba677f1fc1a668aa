"""The lines before and after a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure, Outcome
from tfrun.job.reports import Error
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.observe.job_summary import print_outcome, print_start
from tfrun.observe.terminal import Terminal


def spec(directory: Path, workers: int = 2, **changes) -> JobSpec:
    return JobSpec(
        program=Program(target="train.py"),
        workers=WorkerRange(low=workers, high=workers),
        run_dir=str(directory / "run"),
        **changes,
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "run" / "logs").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("workers", "ps", "told"),
    [
        (1, 0, "tfrun: train · 1 worker · run directory run\n"),
        (4, 0, "tfrun: train · 4 workers · run directory run\n"),
        (2, 1, "tfrun: train · 2 workers · 1 parameter server · run directory run\n"),
        (2, 2, "tfrun: train · 2 workers · 2 parameter servers · run directory run\n"),
    ],
)
def test_the_start(
    here: Path, capsys: pytest.CaptureFixture[str], workers: int, ps: int, told: str
) -> None:
    terminal = Terminal(prefix_all=False, chief="worker:0")
    print_start(terminal, spec(here, workers, ps=ps))
    terminal.close()
    assert capsys.readouterr() == ("", told)


def outcome(here: Path, result: Outcome, capsys, fit=None, **changes) -> str:
    print_outcome(result, spec(here, **changes), "worker:0", fit or {}, 12.34)
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("fit", "told"),
    [
        ({}, "finished in 12.3 s"),
        ({"samples": 1000, "steps": 10, "seconds": 2.0}, "finished in 12.3 s · 500 samples/s"),
        ({"samples": None, "steps": 10, "seconds": 2.0}, "finished in 12.3 s · 5.0 steps/s"),
        ({"samples": 0, "steps": 0, "seconds": 2.0}, "finished in 12.3 s"),
        ({"samples": 5, "steps": 5, "seconds": 0}, "finished in 12.3 s"),
        (
            {"logs": {"loss": 0.25, "accuracy": 0.98765, "name": "x", "list": [1], "none": None}},
            "finished in 12.3 s · loss 0.2500 · accuracy 0.9877",
        ),
        ({"logs": {"loss": "NaN", "a": "-Infinity"}}, "finished in 12.3 s · loss nan · a -inf"),
        ({"logs": None}, "finished in 12.3 s"),
    ],
)
def test_a_good_end(here: Path, capsys, fit: dict, told: str) -> None:
    text = outcome(here, Outcome(exit_code=0), capsys, fit)
    assert text == f"tfrun: {told}\ntfrun: logs and events in run\n"


def test_a_directory_elsewhere_is_named_in_full(here: Path, capsys, monkeypatch) -> None:
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert f"logs and events in {here}/run" in outcome(here, Outcome(exit_code=0), capsys)


def test_a_working_directory_that_was_removed(here: Path, capsys, monkeypatch) -> None:
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    (here / "below").rmdir()
    assert f"logs and events in {here}/run" in outcome(here, Outcome(exit_code=0), capsys)


def test_an_interrupt(here: Path, capsys) -> None:
    text = outcome(here, Outcome(exit_code=130, interrupted="SIGINT"), capsys)
    assert text == "tfrun: stopped by SIGINT after 12.3 s\n"


def failed(task: str) -> Outcome:
    error = Error(type="ValueError", message="boom", traceback="Traceback\nValueError: boom")
    failure = Failure(task=task, time=0, status=ExitStatus(code=1), error=error)
    return Outcome(exit_code=1, cause=failure, others=1)


@pytest.mark.parametrize(
    ("task", "log_all", "whole"),
    [("worker:1", False, True), ("worker:1", True, False), ("worker:0", False, False)],
)
def test_a_failure_names_the_log_and_repeats_nothing(
    here: Path, capsys, task: str, log_all: bool, whole: bool
) -> None:
    name = task.replace(":", "-")
    (here / "run" / "logs" / f"{name}.log").write_text("")
    text = outcome(here, failed(task), capsys, log_all=log_all)
    assert f"Log: run/logs/{name}.log" in text
    assert "ValueError: boom" in text
    assert ("Traceback" in text) is whole


def test_a_failure_before_there_is_a_log_names_the_directory(here: Path, capsys) -> None:
    assert "Log: run/logs " in outcome(here, failed("worker:1"), capsys)


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (1, " · 1 restart\n"), (2, " · 2 restarts\n")]
)
def test_restarts_are_counted_at_a_good_end(here: Path, capsys, count: int, told: str) -> None:
    text = outcome(here, Outcome(exit_code=0, restarts=count), capsys)
    assert told in text
    assert ("restart" in text) == bool(count)


@pytest.mark.parametrize(
    ("count", "told"), [(1, "restarted once before"), (2, "restarted 2 times")]
)
def test_restarts_are_counted_at_a_bad_end(here: Path, capsys, count: int, told: str) -> None:
    assert told in outcome(here, replace(failed("worker:1"), restarts=count), capsys)
