"""Several workers that each train the whole job: said loudly, and with --strict an end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

SCRIPT = SCRIPTS / "trains_alone.py"
WARNING = (
    r"WARNING TFRUN-511: {n} workers each train the whole job alone "
    r"\(.*trains_alone\.py:{line}\): {why}"
)


def line_of(end: str) -> int:
    (line,) = [n for n, t in enumerate(SCRIPT.read_text().splitlines(), 1) if t.endswith(end)]
    return line


FIT, LOOP = line_of("verbose=0)  # here"), line_of("strict=True))  # here")


def shown(kind: str, folder: Path, *options: str, n: int = 2, exit_code: int = 0) -> str:
    command = [TFRUN, "-n", str(n), "--run-dir", folder / "run", *options, SCRIPT, kind]
    return shown_by(command, {}, timeout=80, exit_code=exit_code)


@pytest.mark.parametrize(
    ("kind", "n", "line", "why"),
    [
        ("none", 3, FIT, "this script makes no strategy"),
        ("loop", 2, LOOP, "this script makes no strategy"),
        ("mirrored", 2, FIT, "MirroredStrategy is a strategy of one process"),
        ("removed", 2, FIT, "the script has taken TF_CONFIG out of its environment"),
    ],
)
def test_it_is_said_at_once_and_at_the_end(
    kind: str, n: int, line: int, why: str, tmp_path: Path
) -> None:
    text = shown(kind, tmp_path, n=n)
    found = re.findall(WARNING.format(n=n, line=line, why=why), text)
    assert len(found) == 2, text
    assert text.index("WARNING") < text.index("finished in") < text.rindex("WARNING")
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [e["code"] for e in map(json.loads, events) if e["event"] == "doubt"] == ["TFRUN-511"]


@pytest.mark.parametrize("kind", ["none", "loop"])
def test_strict_ends_the_job_with_a_code_of_its_own(kind: str, tmp_path: Path) -> None:
    text = shown(kind, tmp_path, "--strict", exit_code=3)
    assert "TFRUN-511: ended by --strict" in text
    assert "2 workers each train the whole job alone" in text


@pytest.mark.parametrize(("kind", "n"), [("nothing", 2), ("predicts", 2), ("none", 1)])
def test_what_is_no_such_training_is_not_meant(kind: str, n: int, tmp_path: Path) -> None:
    assert "TFRUN-511" not in shown(kind, tmp_path, "--strict", n=n)
