"""Several strategies in one job; and where a crash of compiled code is told to have happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_workers import largest_difference
from workers import SCRIPTS, TFRUN, results_of, shown_by


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["host", "ring"])
def test_each_trains_the_same_model(way: str) -> None:
    for worker in results_of("strategies_beside.py", 2, timeout=200, TFRUN_COMMUNICATION=way):
        assert worker.pop("replicas") == [2, 1, 1, 2]
        for name, weights in worker.items():
            assert largest_difference(weights, worker["one"]) < 1e-9, name


@pytest.mark.timeout(200)
def test_a_crash_tells_the_line_of_the_script(tmp_path: Path) -> None:
    command = [TFRUN, "-n", "2", "--plain", "--max-restarts", "0", "--run-dir", tmp_path / "run"]
    script = SCRIPTS / "strategies_beside.py"
    shown = shown_by([*command, script], {"CRASH": "1"}, timeout=150, exit_code=139)
    shown = " ".join(shown.replace("│", " ").split())  # the report's box breaks lines
    assert "worker 1 failed first: killed by SIGSEGV" in shown
    line = 1 + script.read_text().splitlines().index("    ctypes.string_at(0)")
    assert f"line {line} in <module>" in shown
    # What the advice speaks of is there.
    log = Path(tmp_path, "run/logs/worker-1.log").read_text()
    assert "Fatal Python error: Segmentation fault" in log and "in string_at" in log
