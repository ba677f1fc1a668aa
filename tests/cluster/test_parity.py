"""`tfrun parity` on real jobs: runs that are equal, and where others part."""

from __future__ import annotations

import json
from typing import Any

from workers import SCRIPTS, environment

from conftest import Jobs


def parity(jobs: Jobs, how: str, *options: str, code: int) -> tuple[dict[str, Any], str]:
    """The report of a parity check with this exit code, and what was shown."""
    done = jobs.run(
        *("parity", "--seed", "3", "--json", "found.json", "--run-dir", "run", *options),
        *(SCRIPTS / "parity.py", how),
        env=environment({}),
        timeout=150,
    )
    shown = done.stdout + done.stderr
    assert done.returncode == code, shown
    return json.loads((jobs.directory / "found.json").read_text() or "{}"), shown


def test_an_honest_script_is_equal_and_runs_on_after_its_steps(jobs: Jobs) -> None:
    found, shown = parity(jobs, "honest", "--steps", "7", code=0)
    assert found["equal"] and [run["workers"] for run in found["runs"]] == [1, 2]
    assert [run["steps"] for run in found["runs"]] == [7, 7]
    assert 0 < found["runs"][1]["largest"]["far"] < 1e-5
    assert {"loss", "accuracy", "val_loss"} <= set(found["runs"][1]["logs"])
    # Two of three epochs, and one step of the `fit` that comes after the last recorded one.
    assert "after 2 1" in (jobs.directory / "run" / "workers-2.log").read_text()
    assert "loss" in shown and "yes" in shown


def test_gradients_that_are_summed_part_at_the_first_update(jobs: Jobs) -> None:
    found, shown = parity(jobs, "sum", "--steps", "3", code=1)
    run = found["runs"][1]
    assert run["parting"]["step"] == 1 and run["steps"] == 3
    names = {difference["name"] for difference in run["parting"]["differences"]}
    assert any(name.startswith("adam/") for name in names), names
    assert "added up differently" in shown


def test_a_script_that_trains_nothing(jobs: Jobs) -> None:
    assert "TFRUN-801" in parity(jobs, "nothing", code=2)[1]


def test_with_as_many_replicas_all_bits_are_compared(jobs: Jobs) -> None:
    options = ("--steps", "7", "-n", "1,2,3", "--replicas", "3")
    found, shown = parity(jobs, "noisy", *options, code=0)
    assert found["replicas"] == 3 and found["tolerance"] == 0
    assert [run["largest"]["far"] for run in found["runs"]] == [0, 0, 0]
    assert shown.count("yes, bit for bit (3 replicas)") == 2, shown


def test_fewer_replicas_than_workers_are_refused(jobs: Jobs) -> None:
    done = jobs.run("parity", "-n", "1,2", "--replicas", "1", SCRIPTS / "parity.py")
    assert done.returncode == 2 and "TFRUN-107" in done.stderr, done.stderr
