"""`tfrun ledger`: what a person and a program get."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tfrun.cli.main import main
from tfrun.data.ledger import writer as ledger
from tfrun.data.order.position import Position
from tfrun.data.order.shards import share_of_step


class Data:
    """What a ledger wants to know of a `tfrun.Dataset` of 20 samples in batches of 8."""

    name, batch_size, is_by_file = "data0", 8, False

    def described(self):
        known = {"data": "data0", "samples": 20, "batch": 8, "seed": 5, "shuffle": True}
        return {**known, "by": "sample", "tolerant": None}

    def share(self, step, replicas, skip):
        return share_of_step(step, 20, 8, 0, 1, skip)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work_under) -> Path:
    """A directory with an older run of two whole epochs, and a newer one that lacks a step."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "_open", {})
    for name, steps in {"whole": range(6), "lacks": (0, 2)}.items():
        folder = tmp_path / "tfrun-runs" / name
        folder.mkdir(parents=True)
        (folder / "job.json").write_text("{}")
        os.utime(folder / "job.json", (len(name) + (name == "lacks"), 5 + (name == "lacks")))
        work_under(run_dir=str(folder), ledger=1)
        tape = ledger.open_tape(Data(), Position())  # type: ignore[arg-type]
        for step in steps:
            tape.taken(*divmod(step, 3))
        tape.settle()
    return tmp_path / "tfrun-runs"


def verb(capsys: pytest.CaptureFixture, *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["ledger", *args])
    captured = capsys.readouterr()
    return end.value.code, captured.out + captured.err  # type: ignore[return-value]


def test_a_run_that_is_exact(runs: Path, capsys: pytest.CaptureFixture) -> None:
    assert verb(capsys, str(runs / "whole")) == (
        0,
        "data0 · epoch 0 · 20 of 20 samples in 3 steps · workers 1 · each exactly once\n"
        "data0 · epoch 1 · 20 of 20 samples in 3 steps · workers 1 · each exactly once\n"
        "every sample exactly once · 2 epochs · 1 round\n",
    )


def test_the_newest_run_is_looked_at_and_what_is_missing_is_named(
    runs: Path, capsys: pytest.CaptureFixture
) -> None:
    code, text = verb(capsys)
    assert code == 1
    assert "12 of 20 samples in 2 steps · workers 1 · 8 MISSING: " in text
    assert text.endswith("NOT every sample exactly once · 1 epoch · 1 round\n")
    code, text = verb(capsys, "--json")
    report = json.loads(text)
    assert (code, report["exact"], report["run"]) == (1, False, "tfrun-runs/lacks")
    (epoch,) = report["epochs"]
    assert len(epoch["missing"]) == epoch["missing_count"] == 8
    assert epoch["duplicates"] == []


def test_what_cannot_be_looked_at_is_one_coded_line(
    runs: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (runs / "nowhere", runs):
        code, text = verb(capsys, str(path))
        assert (code, text.count("\n")) == (2, 1)
        assert text.startswith("tfrun: TFRUN-610: ")
    (runs / "whole" / "ledger" / "notes").write_text("")
    code, text = verb(capsys, str(runs / "whole"))
    assert (code, text.count("\n")) == (1, 1)
    assert text.startswith("tfrun: TFRUN-611: ")
    monkeypatch.chdir(runs / "whole")
    code, text = verb(capsys)
    assert code == 2
    assert "no run in tfrun-runs here" in text


def test_nothing_trained_is_nothing_proved(
    runs: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = (runs / "whole" / "ledger").iterdir()
    whole = file.read_text()
    file.write_text("".join(whole.splitlines(keepends=True)[:2]))
    code, text = verb(capsys, str(runs / "whole"))
    assert (code, text) == (1, "no step was trained to its end · 0 epochs · 1 round\n")
    file.write_text(whole.replace('"lacks": ""', '"lacks": "No space left on device"'))
    code, text = verb(capsys, str(runs / "whole"))
    assert code == 1
    told = "INCOMPLETE: worker 0 of round 0 of job 1: the disk was full: No space left on device\n"
    assert told + "incomplete: what is missing here may have been trained · " in text
    file.write_text("")
    code, text = verb(capsys, str(runs / "whole"))
    assert (code, text.count("no step was trained"), text.count("is empty")) == (1, 0, 1)


def test_what_the_ledger_does_not_cover_is_said(
    runs: Path, capsys: pytest.CaptureFixture, work_under
) -> None:
    work_under(run_dir=str(runs / "whole"), ledger=2)
    for _ in range(2):
        ledger.not_covered("a pipeline", "use tfrun.Dataset")
    by_file = Data()
    by_file.is_by_file = True
    ledger.open_tape(by_file, Position()).taken(0, 0)  # type: ignore[arg-type]
    code, text = verb(capsys, str(runs / "whole"))
    assert code == 0
    assert text.endswith(
        "each exactly once\n"
        "NOT COVERED: a pipeline: use tfrun.Dataset\n"
        'NOT COVERED: data0, shard="FILE": leave `shard` out\n'
        "every covered sample exactly once · 2 epochs · 2 rounds\n"
    )
