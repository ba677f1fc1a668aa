"""What the verbs about a run have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.cli.find_run import with_log
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure, Outcome
from tfrun.observe.failure_report import failure_json


def test_the_log_that_is_named_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "run" / "logs"
    logs.mkdir(parents=True)
    (logs / "worker-0.log").touch()
    monkeypatch.chdir(tmp_path)
    named = {"worker:0": "run/logs/worker-0.log", "worker:1": "run/logs", "local": "run/logs"}
    for task, log in named.items():
        failure = Failure(task=task, time=0.0, status=ExitStatus(code=1))
        status = {"failure": failure_json(Outcome(exit_code=1, cause=failure))}
        shown = with_log(status, tmp_path / "run")["failure"]["log"]
        assert shown == log and Path(shown).exists()
    assert with_log({"failure": None}, tmp_path) == {"failure": None}
