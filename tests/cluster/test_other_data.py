"""Workers whose arrays are not the same are told so; data that is each one's own is let be."""

from __future__ import annotations

from pathlib import Path

SCRIPT = Path(__file__).with_name("scripts") / "other_data.py"


def test_arrays_by_the_clock_are_a_warning(jobs) -> None:
    done = jobs.run("-n", 2, SCRIPT, "mistakes")
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout
    said = "WARNING TFRUN-616: validation_data of model.fit (other_data.py:"
    assert done.stderr.count(said) == 2, done.stderr


def test_arrays_by_the_clock_end_a_strict_job(jobs) -> None:
    done = jobs.run("-n", 3, "--strict", SCRIPT, "mistakes")
    assert done.returncode == 3, done.stderr
    assert "TFRUN-616" in done.stderr


def test_what_each_worker_is_to_have_of_its_own_is_no_mistake(jobs) -> None:
    done = jobs.run("-n", 2, "--strict", SCRIPT, "meant")
    assert done.returncode == 0, done.stderr
    assert "TFRUN-616" not in done.stderr
