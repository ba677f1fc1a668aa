"""The table and the JSON of a drill."""

from __future__ import annotations

import dataclasses
import io
import json

from rich.console import Console

from tfrun.tools.drill.report import DrillReport, print_report
from tfrun.tools.drill.verdict import Row

GOOD = Row(
    fault="kill",
    run_dir="runs/kill",
    hit=1,
    noticed=0.031,
    first_step=1.22,
    first_steps=(1.22,),
    weights_equal=True,
)


def shown(*rows: Row, width: int = 100) -> str:
    text = io.StringIO()
    print_report(report(*rows), Console(file=text, width=width))
    return text.getvalue()


def report(*rows: Row) -> DrillReport:
    return DrillReport(script="train.py", workers=2, seed=7, seconds=12.5, rows=rows)


def test_a_good_row() -> None:
    assert report(GOOD).ok
    line = shown(GOOD).splitlines()[-1]
    assert [cell.strip() for cell in line.split("│")] == [
        "kill",
        "0.03",
        "1.22",
        "0",
        "unknown",
        "equal",
        "ok",
    ]
    line = shown(dataclasses.replace(GOOD, samples_lost=0, samples_repeated=3)).splitlines()[-1]
    assert [cell.strip() for cell in line.split("│")][4] == "0/3"


def test_who_has_stayed_is_said_where_anybody_has() -> None:
    assert "in place" not in shown(GOOD)
    stayed = dataclasses.replace(GOOD, recoveries=12, in_place=11)
    head, _, *lines = shown(stayed, GOOD, width=140).splitlines()
    assert "in place" in head
    assert [line.split("│")[-2].strip() for line in lines] == ["11 of 12", "0 of 0"]


def test_what_was_not_tried_is_said_and_not_ok() -> None:
    row = Row(fault="disk", run_dir="runs/disk", skipped="needs root")
    text = shown(GOOD, row)
    assert "SKIPPED" in text and "disk: skipped: needs root" in text
    assert not report(GOOD, row).ok


def test_a_broken_promise_is_said_in_words() -> None:
    bad = dataclasses.replace(GOOD, weights_equal=False, broken=("other weights",))
    text = shown(GOOD, bad)
    assert not report(GOOD, bad).ok
    assert "kill: other weights (see runs/kill.log)" in text
    assert "FAILED" in text and "--deterministic" in text


def test_a_fault_that_did_not_come_is_not_ok() -> None:
    row = Row(fault="kill", run_dir="runs/kill-again")
    assert "not hit" in shown(row)
    assert not report(row).ok


def test_a_job_that_was_over_too_soon() -> None:
    row = dataclasses.replace(GOOD, fault="random", times=30, hit=2)
    text = shown(row)
    assert "FAILED" in text and "random: the job was over after 2 of 30" in text


def test_what_is_not_known_is_not_claimed() -> None:
    row = dataclasses.replace(
        GOOD,
        hit=30,
        times=30,
        first_steps=(1.22, 2.5, None),
        steps_lost=4,
        steps_lost_exact=False,
        weights_equal=None,
    )
    text = shown(row)
    for part in ("kill x 30", "1.22 (at most 2.50)", ">= 4", "unknown"):
        assert part in text


def test_the_json_has_it_all() -> None:
    values = json.loads(json.dumps(report(GOOD).to_json()))
    assert (values["ok"], values["seed"], values["workers"]) == (True, 7, 2)
    (row,) = values["rows"]
    assert row["ok"] and row["fault"] == "kill" and row["first_step"] == 1.22
