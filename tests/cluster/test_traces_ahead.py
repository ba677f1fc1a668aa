"""A successor of a loop traces beside the job what others have traced, and not after it joins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

from tfrun.observe.events import read_events

ANEW = {"needs", "late", "other", "twin a", "twin b"}


def run(folder: Path, kills: str) -> str:
    command = [TFRUN, "-n", "2", "--seed", "5", "--threads-per-worker", "1", "--run-dir", folder]
    return shown_by([*command, SCRIPTS / "traces_ahead.py"], {"KILLS": kills}, timeout=120)


@pytest.mark.timeout(260)
def test_what_others_have_traced_is_traced_before_it_joins(tmp_path: Path) -> None:
    wanted, shown = run(tmp_path / "alone", "alone"), run(tmp_path / "run", "one")
    ends = [
        re.findall(r"^(?:BITS|MADE|WEIGHTS) .*", text, re.MULTILINE) for text in (wanted, shown)
    ]
    assert len(ends[0]) == 3 and ends[0] == ends[1], shown
    events = list(read_events(tmp_path / "run" / "events.jsonl"))
    assert [e["in_place"] for e in events if e["event"] in ("recovered", "grown")] == [True] * 2
    log = (tmp_path / "run" / "logs" / "worker-1.log").read_text()
    _, successor = log.split("--- successor 0 ---")
    before, after = re.split(r"--- round \d+, in place ---", successor)
    # Of each size that a piece has: those of whole batches, and of the last one of an epoch.
    assert sorted(re.findall(r"TRACED (.*) (\d)", before)) == [
        *(("check", size) for size in "24"),
        *(("needs", size) for size in "24"),  # in vain: what it needs is not there yet
        *(("other", size) for size in "24"),  # in vain: a number in it is set later
        *(("train", size) for size in "24"),
    ]
    traced = re.findall(r"TRACED (.*) (\d)", after)
    assert {name for name, _ in traced} == ANEW and len(traced) == len(set(traced))
