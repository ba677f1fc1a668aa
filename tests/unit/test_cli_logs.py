"""`tfrun logs`, `ls` and `status` of runs that have ended, from their directories alone."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from tfrun.cli.logs import logs
from tfrun.cli.ls import ls
from tfrun.cli.status import status
from tfrun.job import control_contact
from tfrun.job.errors import UsageError
from tfrun.observe.events import EventLog


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    folder = tmp_path / "tfrun-runs/train-1"
    (folder / "logs").mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    (folder / "logs/worker-0.log").write_text("step 1\nloss 2\n 50%\r100%\nno end")
    (folder / "logs/worker-1.log").write_text("step 1\nloss 3\n")
    (folder / "logs/worker-10.log").write_text("the last one\n")
    (folder / "logs/local.zygote.log").write_text("none of a worker\n")
    events = EventLog(folder / "events.jsonl")
    events.add("job", name="train", started=time.time(), workers={"low": 2, "high": 2})
    end = {"state": "failed", "exit_code": 3, "restarts": 0}
    failure = {
        **{"task": "worker:1", "code": "TFRUN-401", "type": "ValueError", "message": "no"},
        **{"headline": "worker 1 failed first: exit code 3, ValueError", "traceback": "a\nno"},
        **{"others": 1, "others_text": "1 other task was stopped because of it."},
        **{"likely": "a likely cause", "fix": "a fix", "log": "logs/worker-1.log"},
    }
    events.add("job_ended", **end, failure=failure)
    events.close()
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_all_workers_by_rank_or_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs.main([], standalone_mode=False) == 0
    assert lines(capsys) == [
        *("[worker 0] step 1", "[worker 0] loss 2", "[worker 0] 100%"),
        *("[worker 1] step 1", "[worker 1] loss 3", "[worker 10] the last one"),
        "[worker 0] no end",
    ]
    assert logs.main(["--rank", "2", "train-1"], standalone_mode=False) == 0
    assert lines(capsys) == ["the last one"]
    assert logs.main(["--grep", "^loss", str(run)], standalone_mode=False) == 0
    assert lines(capsys) == ["[worker 0] loss 2", "[worker 1] loss 3"]
    assert logs.main(["--rank", "9"], standalone_mode=False) == 1
    assert "no log of rank 9" in capsys.readouterr().err


def test_following_ends_with_the_job(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = control_contact.Contact(
        host=socket.gethostname(), pid=os.getpid(), address="127.0.0.1", port=1, token="t"
    )
    control_contact.write(run, here)

    def goes_on() -> None:
        with (run / "logs/worker-1.log").open("a") as file:
            file.write("later\n")
        (run / control_contact.NAME).unlink()

    timer = threading.Timer(0.5, goes_on)
    timer.start()
    assert logs.main(["-f", "--rank", "1"], standalone_mode=False) == 0
    timer.join()
    assert lines(capsys)[-1] == "later"


def test_what_is_wrong_is_said(run: Path) -> None:
    for wrong, code in ((["--grep", "("], "TFRUN-105"), (["no-such-run"], "TFRUN-109")):
        with pytest.raises(UsageError) as caught:
            logs.main(wrong, standalone_mode=False)
        assert caught.value.code == code


def test_a_failed_run_shows_its_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main([], standalone_mode=False) == 0
    shown = lines(capsys)
    assert shown[0].startswith("train · failed · 2 workers · 0:0")
    assert "TFRUN-401: worker 1 failed first: exit code 3, ValueError" in shown
    for line in (
        "no",
        "likely cause: a likely cause",
        "fix: a fix",
        "log: tfrun-runs/train-1/logs/worker-1.log",
    ):
        assert line in shown
    assert ls.main([], standalone_mode=False) == 0
    assert lines(capsys)[1].split()[:2] == ["train-1", "failed"]
    Path("nothing-here").mkdir()
    assert ls.main(["nothing-here"], standalone_mode=False) == 0
    assert lines(capsys) == ["no runs in nothing-here"]
