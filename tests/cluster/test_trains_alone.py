"""A script that names no strategy gets the job's; where each worker trains alone it is said."""

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


SEVERAL = ("--replicas", "4")
SCRIPTS_OWN = ("--strategy", "script")
BY_HAND = line_of("# by hand")
FIT, LOOP = line_of("verbose=0)  # here"), line_of("strict=True))  # here")


def shown(kind: str, folder: Path, *options: str, n: int = 2, exit_code: int = 0) -> str:
    command = [TFRUN, "-n", str(n), "--run-dir", folder / "run", *options, SCRIPT, kind]
    return shown_by(command, {}, timeout=80, exit_code=exit_code)


@pytest.mark.parametrize(
    ("kind", "n", "why"),
    [
        ("none", 3, "this script names no strategy"),
        ("default", 2, "this script's default strategy is the job's strategy here"),
        ("asks late", 2, "this script names no strategy"),
        ("predicts", 2, "this script names no strategy"),
        ("mirrored", 2, "this script's MirroredStrategy is the job's strategy here"),
        ("one device", 2, "this script's OneDeviceStrategy is the job's strategy here"),
    ],
)
def test_it_trains_with_the_others(kind: str, n: int, why: str, tmp_path: Path) -> None:
    text = shown(kind, tmp_path, "--strict", n=n)
    said = [line for line in text.splitlines() if "adopted" in line]
    assert len(said) == 1 and said[0].endswith(
        f"adopted: {why}; its batches are shared out among {n} workers"
    ), text
    if kind != "predicts":
        assert f"global batch 16 · {16 / n:.3g} a worker" in text or n == 3, text


@pytest.mark.parametrize(
    ("kind", "code"),
    [("loop", "TFRUN-512"), ("central", "TFRUN-503"), ("by rank", "TFRUN-515")],
)
def test_what_cannot_be_shared_is_refused(kind: str, code: str, tmp_path: Path) -> None:
    text = shown(kind, tmp_path, exit_code=1)
    assert code in text and "trains_alone.py" in text, text


@pytest.mark.parametrize(
    ("kind", "n", "line", "why", "options"),
    [
        ("none", 3, FIT, "this script makes no strategy", SCRIPTS_OWN),
        ("loop", 2, LOOP, "this script makes no strategy", SCRIPTS_OWN),
        ("mirrored", 2, FIT, "MirroredStrategy is a strategy of one process", SCRIPTS_OWN),
        ("no model", 2, BY_HAND, "this script makes no strategy; have `strategy.run` of", ()),
        ("removed", 2, FIT, "the script has taken TF_CONFIG out of its environment", ()),
        ("removed", 2, FIT, "the script has taken TF_CONFIG out of its environment", SEVERAL),
    ],
)
def test_who_trains_alone_is_told_at_once_and_at_the_end(
    kind: str, n: int, line: int, why: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    text = shown(kind, tmp_path, *options, n=n)
    found = re.findall(WARNING.format(n=n, line=line, why=why), text)
    assert len(found) == 2, text
    assert text.index("WARNING") < text.index("finished in") < text.rindex("WARNING")
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [e["code"] for e in map(json.loads, events) if e["event"] == "doubt"] == ["TFRUN-511"]


@pytest.mark.parametrize("kind", ["none", "loop"])
def test_strict_ends_the_job_with_a_code_of_its_own(kind: str, tmp_path: Path) -> None:
    text = shown(kind, tmp_path, *SCRIPTS_OWN, "--strict", exit_code=3)
    assert "TFRUN-511: ended by --strict" in text
    assert "2 workers each train the whole job alone" in text


@pytest.mark.parametrize(
    ("kind", "n"),
    [("nothing", 2), ("looks at gradients", 2), ("predicts", 2), ("none", 1), ("no model", 1)],
)
def test_what_is_no_such_training_is_not_meant(kind: str, n: int, tmp_path: Path) -> None:
    options = SCRIPTS_OWN if n > 1 else ()
    assert "TFRUN-511" not in shown(kind, tmp_path, *options, "--strict", n=n)


def test_workers_that_train_alone_save_whole_models_to_one_path(tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(
        "import keras\n"
        "model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])\n"
        "for _ in range(20):\n"
        "    model.save('model.keras')\n"
        "    assert len(keras.models.load_model('model.keras').get_weights()) == 2\n"
        "print('whole each time')\n"
    )
    command = [TFRUN, "-n", "2", "--log-all", "--run-dir", tmp_path / "run", *SCRIPTS_OWN, script]
    text = shown_by(command, {}, timeout=80, cwd=tmp_path)
    assert text.count("whole each time") == 2, text
