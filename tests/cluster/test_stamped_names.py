"""Names of each worker's own, of the time or by `tempfile`: what the chief has saved is found."""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path

import pytest
from workers import SCRIPTS

from conftest import Jobs

SCRIPT = SCRIPTS / "stamped_names.py"


def numbers(jobs: Jobs, n: int) -> list[tuple[str, str]]:
    done = jobs.run("-n", n, SCRIPT)
    assert done.returncode == 0, done.stderr
    return re.findall(r"^(\w+) = (\S+)$", done.stdout, re.M)


@functools.cache
def of_one_worker() -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        return numbers(Jobs(Path(folder), "one"), 1)


@pytest.mark.parametrize("n", [2, 3])
def test_what_was_saved_under_a_name_of_each_workers_own_is_loaded(n: int, jobs) -> None:
    wanted, found = of_one_worker(), numbers(jobs, n)
    assert [name for name, _ in wanted] == ["best", "last", "temporary", "weights", "saved"]
    for (name, one), (other, many) in zip(wanted, found, strict=True):
        assert name == other and float(many) == pytest.approx(float(one), rel=1e-4)
