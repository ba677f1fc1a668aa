"""`tfrun bench` on two workers: real jobs, real sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Jobs

SIZES = ["--sizes", "4K,1M", "--model", "2M", "--steps", "3", "--batch", "8"]


def measured(jobs: Jobs, ways: str) -> tuple[dict[str, Any], str, str]:
    """The report, and what was printed."""
    more = ["--communication", ways, "--json", "report.json", "--run-dir", "here"]
    cache = {"XDG_CACHE_HOME": str(jobs.directory)}
    result = jobs.run("bench", *SIZES, *more, env=cache, timeout=150)
    assert result.returncode == 0, result.stderr
    report = json.loads((jobs.directory / "report.json").read_text())
    return report, result.stdout, result.stderr


def test_two_workers_are_measured(jobs: Jobs) -> None:
    report, out, err = measured(jobs, "ring")
    (way,) = report["ways"]
    assert (report["workers"], way["communication"]) == (2, "ring")
    assert [one["bytes"] for one in way["all_reduce"]] == [4096, 1 << 20]
    assert report["link"] > 0 and report["alone"] > 0 and way["efficiency"] > 0
    assert "recommended: --communication ring" in out
    picture = jobs.directory / "here" / "bench.png"
    assert picture.read_bytes().startswith(b"\x89PNG"), err
    assert not (jobs.directory / "tfrun").exists()  # one way alone is the fastest of nothing


@pytest.mark.thorough
def test_later_jobs_use_what_was_the_fastest(jobs: Jobs) -> None:
    report, out, err = measured(jobs, "host,ring")
    best = report["ways"][0]["communication"]
    (small,) = [way["small_bytes"] for way in report["ways"] if way["communication"] == "host"]
    assert f"recommended: --communication {best}" in out
    assert f"jobs of 2 workers here use that from now on ({jobs.directory}" in err
    jobs.script(
        "import json, os, pathlib, tensorflow as tf\n"
        "from tfrun.engine import host_collective\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "group = host_collective.current()\n"
        "found = [group is not None, group.small_bytes if group else None]\n"
        "pathlib.Path('found-' + os.environ['RANK']).write_text(json.dumps(found))\n"
    )
    cache = {"XDG_CACHE_HOME": str(jobs.directory)}

    def found(*options: str) -> tuple[str, list[Any]]:
        job = jobs.run("-n", "2", *options, "train.py", env=cache)
        assert job.returncode == 0, job.stderr
        return job.stderr, json.loads(Path(jobs.directory, "found-0").read_text())

    said, (is_host, used) = found()
    assert "as measured by tfrun bench on 20" in said and f": --communication {best}" in said
    assert is_host == (best == "host") and (used == small or not is_host)
    said, (is_host, used) = found("--communication", "host")
    assert "as measured" in said and (is_host, used) == (True, small)
    said, (is_host, used) = found("--communication", "host", "--no-measured")
    assert "as measured" not in said and (is_host, used) == (True, 64 << 10)
