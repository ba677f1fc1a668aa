"""Jobs that go on in the middle of an epoch with another batch or other data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

from tfrun.data.ledger.proof import examine


def train(folder: Path, workers: int, exit_code: int = 0, **env: str) -> str:
    command = [TFRUN, "-n", str(workers), "--ledger", "--run-dir", "run", "--checkpoint-every", "2"]
    script = str(SCRIPTS / "other_batches.py")
    return shown_by([*command, script, "."], env, timeout=180, cwd=folder, exit_code=exit_code)


def counts(folder: Path) -> list[float]:
    """How often each sample was used in both epochs."""
    return json.loads((folder / "counts.json").read_text())


@pytest.mark.parametrize(
    ("how", "batch", "workers"),
    [("arrays", "14:9", 2), ("dataset", "14:40", 1), ("loop", "14:9", 3), ("pipeline", "14:28", 2)],
)
def test_a_job_that_is_started_again(how: str, batch: str, workers: int, tmp_path: Path) -> None:
    given = {"HOW": how, "BATCH": batch, "SAMPLES": "100:100", "CUT": "exit"}
    train(tmp_path, workers, exit_code=3, **given)
    train(tmp_path, workers, **given)
    assert counts(tmp_path) == [2.0] * 100
    report = examine(tmp_path / "run")
    assert report.not_covered if how == "pipeline" else report.exact and len(report.epochs) == 2


@pytest.mark.parametrize(("how", "workers"), [("dataset", 3), ("loop", 2)])
def test_a_job_that_loses_a_worker(how: str, workers: int, tmp_path: Path) -> None:
    given = {"HOW": how, "BATCH": "14:9", "SAMPLES": "100:100", "CUT": "kill"}
    assert "WARNING" not in train(tmp_path, workers, **given)
    assert counts(tmp_path) == [2.0] * 100
    assert examine(tmp_path / "run").exact


def test_other_data_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    given = {"HOW": "arrays", "BATCH": "14:14", "CUT": "exit"}
    train(tmp_path, 2, exit_code=3, SAMPLES="100:100", **given)
    said = train(tmp_path, 2, exit_code=1, SAMPLES="100:90", **given)
    assert "TFRUN-617" in said and "100 samples and has 90 now" in " ".join(said.split())
    train(tmp_path, 2, SAMPLES="100:100", **given)  # nothing is lost
    assert counts(tmp_path) == [2.0] * 100


def test_an_order_that_is_drawn_anew_is_told(tmp_path: Path) -> None:
    """As by a script that draws more where it makes a file than where it finds it."""
    given = {"HOW": "arrays", "BATCH": "14:14", "SAMPLES": "100:100", "ROLLED": "1"}
    said = train(tmp_path, 2, CUT="kill", **given)
    assert "WARNING TFRUN-617: x" in said and "not what the script had passed before" in said
    assert sorted(set(counts(tmp_path))) != [2.0]
    alone = tmp_path / "alone"
    alone.mkdir()
    train(alone, 1, exit_code=3, CUT="exit", **given)
    assert "TFRUN-617" in train(alone, 1, exit_code=1, CUT="exit", **given)


def test_a_running_job_goes_on_and_says_that_it_is_not_exact(tmp_path: Path) -> None:
    given = {"HOW": "pipeline", "BATCH": "14:9", "SAMPLES": "100:100", "CUT": "kill"}
    said = train(tmp_path, 2, **given)
    assert "WARNING TFRUN-617: 70 samples of the epoch are done" in said
    # The seven samples of the last whole batch of nine, again.
    assert sorted(counts(tmp_path)) == [2.0] * 93 + [3.0] * 7
