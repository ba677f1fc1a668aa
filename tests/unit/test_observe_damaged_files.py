"""Every file of a run directory, damaged in every way, before every verb that reads one.

What can be read is shown, the rest is named, and nothing ends with a traceback.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tfrun.cli.main import command_for
from tfrun.job import control_contact, run_dir
from tfrun.job.errors import TfrunError
from tfrun.observe.damaged_files import damaged
from tfrun.observe.events import EventLog, end_of_lines, new_lines, read_events
from tfrun.observe.monitor import view_of

NAMED = ("job.json", "control.json", "events.jsonl", "logs", "logs/worker-0.log")
LEDGER = "ledger/00001-00000-00000.jsonl"
FILES = (*NAMED, ".lock", "ledger", LEDGER, "checkpoints", "checkpoints/step-5/manifest.json")
DAMAGE: dict[str, Callable[[Path, bytes], object]] = {
    "gone": lambda path, data: None,
    "empty": lambda path, data: path.write_bytes(b""),
    "cut": lambda path, data: path.write_bytes(data[: len(data) // 2]),
    "binary": lambda path, data: path.write_bytes(bytes(range(256)) * 4),
    "a byte": lambda path, data: path.write_bytes(
        data[: len(data) // 2] + b"\xff" + data[len(data) // 2 :]
    ),
    "a directory": lambda path, data: path.mkdir(),
    "not to be read": lambda path, data: path.symlink_to(path),  # binds root, as modes do not
    "another's": lambda path, data: path.write_bytes(b'[]\n3\nnull\n"x"\n{}\n'),
    "deep": lambda path, data: path.write_bytes(b"[" * 100_000 + b"\n"),
    "a long number": lambda path, data: path.write_bytes(b"9" * 100_000 + b"\n"),
}
VERBS = (
    *(["status"], ["status", "--json"], ["logs"], ["logs", "--rank", "0"], ["logs", "--follow"]),
    *(["stop"], ["stacks"], ["profile", "--timeout", "0.1"], ["top"], ["ledger"]),
)


def job_here(run: Path) -> None:
    """A job that has ended, in all files that one leaves."""
    (run / "logs").mkdir(parents=True)
    run_dir.write_job(run, {"started": 1.0, "seed": 7})
    there = control_contact.Contact(
        host=socket.gethostname(), pid=2**22 + 1, address="", port=1, token="t"
    )
    control_contact.write(run, there)
    for rank in (0, 1):
        (run / f"logs/worker-{rank}.log").write_text(f"loss of {rank}\nend of {rank}\n")
    events = EventLog(run / "events.jsonl")
    events.add("job", name="x", script="x.py", started=1.0, workers={"low": 2, "high": 2})
    events.add("agent_joined", agent="local", host="h")
    events.add("round", number=0, state="running")
    for rank in (0, 1):
        events.add("worker_started", task=f"worker:{rank}", agent="local", pid=5, round=0)
    events.add("worker_report", task="worker:0", report={"kind": "first_step", "step": 1})
    events.add("job_ended", state="finished", exit_code=0, restarts=0, failure=None)
    events.close()
    for file in (LEDGER, "checkpoints/step-5/manifest.json"):
        (run / file).parent.mkdir(parents=True)
        (run / file).write_text("{}\n")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    job_here(tmp_path / "tfrun-runs/run")
    return tmp_path / "tfrun-runs/run"


def damage(path: Path, how: str) -> None:
    data = path.read_bytes() if path.is_file() else b""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    DAMAGE[how](path, data)


def told(verb: list[str], *rest: str) -> str:
    """Runs a verb; only a coded error may end it. Returns its code."""
    command, args, name = command_for([*verb, *rest])
    try:
        command.main(args=args, prog_name=name, standalone_mode=False)
    except TfrunError as error:
        return error.code
    except click.ClickException:
        return "usage"
    return ""


def test_a_whole_one_has_nothing_to_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert damaged(run) == []
    for verb in VERBS:
        told(verb, str(run))
    assert "WARNING" not in capsys.readouterr().err


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("file", FILES)
def test_damage_ends_no_verb(
    run: Path, file: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run / file, how)
    there = (run / "events.jsonl").is_file() or (run / "job.json").is_file()
    assert there
    for verb in VERBS:
        if verb == ["top"] and file in ("control.json", "events.jsonl"):
            continue  # would watch a job whose end nobody knows
        told(verb, str(run))
        shown = capsys.readouterr()
        if verb == ["logs"] and file != "logs":
            assert "loss of 1" in shown.out and "end of 1" in shown.out
        if verb == ["status"] and file != "events.jsonl":
            assert "finished" in shown.out
        if verb == ["stop"]:
            assert "the job" not in shown.out  # nothing runs there
    told(["ls"])
    shown = capsys.readouterr()
    assert "run " in shown.out and ("finished" in shown.out or file == "events.jsonl")
    # Next the job that goes on here.
    assert run_dir.last_job(run).get("seed", 7) == 7
    assert run_dir.newest(run.parent) == run and run_dir.next_ledger(run) >= 1
    new_lines(run / "events.jsonl")
    end_of_lines(run / "events.jsonl")


@pytest.mark.parametrize("file", NAMED)
@pytest.mark.parametrize("how", DAMAGE)
def test_what_is_damaged_is_named(run: Path, file: str, how: str) -> None:
    damage(run / file, how)
    said = damaged(run)
    if file == "logs/worker-0.log":
        expected = how in ("a directory", "not to be read")
    elif file == "logs":
        expected = how not in ("gone", "a directory")
    elif how == "gone":
        expected = file == "events.jsonl"
    else:
        expected = (file, how) not in {("events.jsonl", "empty"), ("events.jsonl", "cut")}
    assert [text.split(" ")[0].rstrip(":") for text in said] == ([file] if expected else []), said


def test_the_lines_that_are_left_are_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"local", b"lo\xffcal")
    lines[5] = lines[5][:20] + b"\n"
    path.write_bytes(b"".join(lines))
    assert damaged(run) == ["events.jsonl: 2 of 7 lines are damaged, the first is line 4"]
    events = read_events(path)
    assert [event["event"] for event in events].count("worker_started") == 2
    assert len(events) == 6 and events[3]["agent"] == "lo\ufffdcal"
    told(["ls"])
    assert "tfrun: WARNING run: events.jsonl: 2 of 7" in capsys.readouterr().err


JUNK = ("x", 3, -1, 1e308, [], ["x"], {}, {"x": 1}, None, True, "worker:0")


def changed(events: list[dict]) -> Iterator[list[dict]]:
    """Yields the events with one field of one of them replaced."""
    for place, event in enumerate(events):
        for name in event:
            for value in JUNK:
                yield [*events[:place], {**event, name: value}, *events[place + 1 :]]


def test_no_value_of_an_event_keeps_the_others_from_being_shown(run: Path) -> None:
    path = run / "events.jsonl"
    for events in changed(read_events(path)):
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        json.dumps(view_of(run).to_json(2e9, heat=True))


@pytest.mark.parametrize("name", ["host", "pid", "address", "port", "token", "tls"])
def test_no_value_of_the_contact_ends_a_verb(run: Path, name: str) -> None:
    path = run / control_contact.NAME
    whole = json.loads(path.read_text()) | {"pid": os.getpid(), "address": "127.0.0.1"}
    for value in ("x", "a b", "\n", "é", 0, -1, 2**70, 1.5, [], {}, None, True):
        path.write_text(json.dumps(whole | {name: value}))
        assert told(["stop"], str(run)) == "TFRUN-109", value
        assert told(["status"], str(run)) == ""
