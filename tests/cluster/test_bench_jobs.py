"""`tfrun bench` on two workers: real jobs, real sums."""

from __future__ import annotations

import json

from conftest import Jobs


def test_two_workers_are_measured(jobs: Jobs) -> None:
    sizes = ["--sizes", "4K,1M", "--model", "2M", "--steps", "3", "--batch", "8"]
    more = ["--communication", "ring", "--json", "report.json", "--run-dir", "here"]
    result = jobs.run("bench", *sizes, *more, timeout=150)
    assert result.returncode == 0, result.stderr
    report = json.loads((jobs.directory / "report.json").read_text())
    (way,) = report["ways"]
    assert (report["workers"], way["communication"]) == (2, "ring")
    assert [one["bytes"] for one in way["all_reduce"]] == [4096, 1 << 20]
    assert report["link"] > 0 and report["alone"] > 0 and way["efficiency"] > 0
    assert "recommended: --communication ring" in result.stdout
    picture = jobs.directory / "here" / "bench.png"
    assert picture.read_bytes().startswith(b"\x89PNG"), result.stderr
