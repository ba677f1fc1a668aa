"""What an optimizer assigns when a step builds it is there, on one worker as on several."""

from __future__ import annotations

from pathlib import Path

SCRIPT = Path(__file__).with_name("scripts") / "optimizer_builds.py"


def test_what_a_build_assigns_is_no_part_of_a_trace(jobs) -> None:
    shown = []
    for workers, more in ((1, ["first"]), (1, []), (2, [])):
        done = jobs.run("-n", workers, SCRIPT, *more)
        assert done.returncode == 0, done.stderr
        shown.append([line for line in done.stdout.splitlines() if line.startswith("found")])
    assert len(shown[0]) == 2 and shown[0] == shown[1] == shown[2], shown
