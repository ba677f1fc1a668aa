"""`tfrun tune` on real jobs: it ends with the data, or with a worker that dies for memory."""

from __future__ import annotations

import importlib.util
import json
import signal
from typing import Any

from workers import SCRIPTS, environment

from conftest import Jobs

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def tune(jobs: Jobs, how: str, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The report of a tuning with this exit code, and what was shown."""
    done = jobs.run(
        *("tune", "--seed", "3", "--json", "found.json", "--run-dir", "run", *options),
        *(SCRIPTS / "tune.py", how),
        env=environment({}),
        timeout=150,
    )
    shown = done.stdout + done.stderr
    assert done.returncode == code, shown
    return json.loads((jobs.directory / "found.json").read_text() or "{}"), shown


def test_it_finds_a_batch_and_says_what_follows(jobs: Jobs) -> None:
    found, shown = tune(jobs, "small", "--start", "60", "--most", "120", "--for", "1,2,4")
    batches = {result["batch"]: result for result in found["results"]}
    assert batches[60]["rate"] > 0 and batches[60]["memory"] > 1e8
    assert batches[120]["ended_by"] == "data"
    assert found["chosen"]["rate"] == max(r["rate"] or 0 for r in found["results"])
    for row, workers in zip(found["scaled"], (1, 2, 4), strict=True):
        batch = workers * found["chosen"]["batch"]
        steps = -(-100 // batch) if batch <= 100 else 0
        assert (row["global_batch"], row["steps"]) == (batch, steps)
        assert abs(row["rate"] - 0.1 * batch / 10) < 1e-9
    assert "chosen" in shown and "linear rule: 0.1 at batch 10" in shown
    assert (jobs.directory / "run" / "tune.png").exists() is HAS_MATPLOTLIB
    assert "tune.png" in shown if HAS_MATPLOTLIB else "TFRUN-803" in shown


def test_a_worker_that_dies_for_memory_is_a_result(jobs: Jobs) -> None:
    options = ["--start", "80", "--most", "90", "--steps", "1", "--memory-limit", "0.8"]
    found, shown = tune(jobs, "memory", *options)
    died = [result for result in found["results"] if result["ended_by"] == "memory"]
    ran = [result for result in found["results"] if result["rate"]]
    assert died and ran, found
    assert max(r["batch"] for r in ran) < min(r["batch"] for r in died)
    assert "out of memory: " in shown
    smallest = min(result["batch"] for result in died)
    events = (jobs.directory / "run" / f"batch-{smallest}" / "events.jsonl").read_text()
    exits = [e for e in map(json.loads, events.splitlines()) if e["event"] == "worker_exited"]
    assert [e["code"] for e in exits] == [-signal.SIGKILL]  # the worker has really died


def test_a_pipeline_that_the_script_batches_is_refused(jobs: Jobs) -> None:
    _, shown = tune(jobs, "pipeline", code=2)
    assert "TFRUN-802" in shown and "from_tf_data" in shown
