"""Plain tf.data pipelines in a job whose workers die: where a resume goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

KILLS = "0:1:0:1:2 1:0:1:2:3 2:1:2:0:3 3:0:2:1:1"


@pytest.mark.timeout(180)
def test_each_sample_is_used_once_an_epoch_also_when_workers_die(tmp_path: Path) -> None:
    command = [TFRUN, "-n", "2", "--seed", "5", "--run-dir", "run"]
    shown = shown_by(
        [*command, str(SCRIPTS / "resume_tf_data.py"), "out.json"],
        {"KILLS": KILLS},
        cwd=tmp_path,
        timeout=150,
    )
    assert "4 restarts" in shown
    counts = json.loads((tmp_path / "out.json").read_text())
    assert counts == [[2.0] * 40, [3.0] * 40, [2.0] * 40]
    # Of the third pipeline nobody can promise that; a person is told, and once.
    assert shown.count("may give other samples from there on") == 1, shown
    assert "`options.deterministic` is False" in shown
