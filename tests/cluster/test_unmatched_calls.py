"""A worker waits for one that does not come: it is told so, by name and place, and the job ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

SCRIPT = SCRIPTS / "unmatched_calls.py"
NOTHING: Mapping[str, str] = {}
GONE = "because its script has ended"


def line_of(place: str) -> int:
    found = [n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if text.endswith(place)]
    (line,) = found
    return line


def shown(
    kind: str,
    folder: Path,
    *,
    n: int = 2,
    way: str = "auto",
    exit_code: int = 1,
    env: Mapping[str, str] = NOTHING,
) -> str:
    """What the terminal shows, on one line."""
    command = [TFRUN, "-n", str(n), "--run-dir", folder / "run", "--communication", way]
    text = shown_by(
        [*command, SCRIPT, kind, folder / "saved.keras"], {**env}, timeout=80, exit_code=exit_code
    )
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize(
    ("kind", "call", "way"),
    [
        ("evaluate", "model.evaluate", "auto"),
        ("evaluate", "model.evaluate", "ring"),
        ("again", "model.fit", "auto"),
        ("reduce", "strategy.reduce", "ring"),
        ("loop", "a collective", "auto"),
        ("loop", "a collective", "ring"),
    ],
)
def test_a_peer_has_come_to_the_end_of_its_script(
    kind: str, call: str, way: str, tmp_path: Path
) -> None:
    text = shown(kind, tmp_path, way=way)
    assert f"TFRUN-406: {call} needs every worker: worker 1 does not come, {GONE} (in " in text
    assert f"unmatched_calls.py:{line_of(f'# here: {kind}')})" in text
    assert "restarted" not in text


def test_all_that_have_ended_are_named(tmp_path: Path) -> None:
    text = shown("evaluate", tmp_path, n=3)
    assert "worker 1 and worker 2 do not come, because their scripts have ended" in text


@pytest.mark.parametrize("way", ["auto", "ring"])
def test_two_stand_in_different_calls(way: str, tmp_path: Path) -> None:
    text = shown("elsewhere", tmp_path, way=way)
    first, second = (line_of(f"# here: elsewhere {rank}") for rank in (0, 1))
    evaluate, predict = f"in model.evaluate (line {first})", f"in model.predict (line {second})"
    by_first = f"worker 1 is {predict}, and this one {evaluate}"
    by_second = f"worker 0 is {evaluate}, and this one {predict}"
    assert by_first in text or by_second in text
    assert "restarted" not in text


def test_halves_that_are_elsewhere(tmp_path: Path) -> None:
    """All that goes over connections begins with one neighbour: where halves meet it is seen."""
    text = shown("parted", tmp_path, n=4, env={"TFRUN_SHARED_MEMORY": "0"})
    most = f"in strategy.reduce (line {line_of('# here: most')})"
    assert "TFRUN-406" in text  # of the next round, if who saw others end was heard first
    by_last = re.search(rf"worker [01] is {re.escape(most)}", text)
    by_first = re.search(r"worker [23] is in a collective", text)
    assert (by_last and "this one in a collective" in text) or (
        by_first and f"this one {most}" in text
    ), text


@pytest.mark.parametrize(
    ("kind", "way", "n"), [("same", "ring", 2), ("same", "auto", 2), ("parted", "auto", 3)]
)
def test_a_sum_of_the_scripts_own_meets_none_of_a_step(
    kind: str, way: str, n: int, tmp_path: Path
) -> None:
    """Neither where both are of one shape, nor where nobody sees what the other one sends."""
    text = shown(kind, tmp_path, n=n, way=way)
    most = f"strategy.reduce (line {line_of('# here: most')})"
    # Of three the one that only sees the others end may be the first to be heard: then it is told
    # by the next round.
    assert "TFRUN-406" in text and ("restarted" not in text or n > 2)
    by_first = f"worker {n - 1} is in a collective" in text and f"and this one in {most}" in text
    # TensorFlow's ring tells its error to the last that comes alone, and the others wait on.
    asked = any(f"worker {rank} is in {most}" in text for rank in range(n - 1)) or (
        way == "ring" and "worker 0 is elsewhere" in text
    )
    by_last = asked and "and this one in a collective" in text
    assert by_first or by_last, text


@pytest.mark.parametrize("way", ["auto", "ring"])
def test_in_a_callback_the_failure_names_the_call(way: str, tmp_path: Path) -> None:
    text = shown("callback", tmp_path, way=way)
    line = line_of("# here: callback")
    fit = line_of("# here: fit")
    # Whoever is first; TensorFlow's own collective does not know where the other one is.
    assert f"unmatched_calls.py:{line})" in text or f"unmatched_calls.py:{fit})" in text
    assert "TFRUN-406: model." in text
    if way == "auto":
        assert f"in model.evaluate (line {line})" in text


def test_a_peer_ends_before_they_have_met(tmp_path: Path) -> None:
    text = shown("before", tmp_path)
    assert (
        f"TFRUN-406: the workers' start needs every worker: worker 1 does not come, {GONE}" in text
    )


def test_a_peer_ends_its_process_at_once(tmp_path: Path) -> None:
    text = shown("hard", tmp_path)
    assert f"unmatched_calls.py:{line_of('# here: hard')}: worker 1 does not come, {GONE}" in text
    assert "TFRUN-406" in text and "restarted" not in text


@pytest.mark.parametrize("way", ["auto", "ring"])
def test_what_needs_nobody_goes_on(way: str, tmp_path: Path) -> None:
    """To be slow is not to wait in vain."""
    text = shown("slow", tmp_path, way=way, exit_code=0)
    assert "LOSS True" in text
    assert "TFRUN-511" not in text  # what it trains alone, beside a shared training, is its affair
    assert (tmp_path / "saved.keras").exists()
