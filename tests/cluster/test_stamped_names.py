"""Names of each worker's own, of the time or by `tempfile`: what the chief has saved is found."""

from __future__ import annotations

import re

import pytest
from workers import SCRIPTS

SCRIPT = SCRIPTS / "stamped_names.py"


@pytest.mark.parametrize("n", [2, 3])
def test_what_was_saved_under_a_name_of_each_workers_own_is_loaded(n: int, jobs) -> None:
    wanted, found = (jobs.run("-n", size, SCRIPT) for size in (1, n))
    assert wanted.returncode == found.returncode == 0, found.stderr
    numbers = [re.findall(r"^(\w+) = (\S+)$", done.stdout, re.M) for done in (wanted, found)]
    assert [name for name, _ in numbers[0]] == ["best", "last", "temporary", "weights", "saved"]
    for (name, one), (other, many) in zip(*numbers, strict=True):
        assert name == other and float(many) == pytest.approx(float(one), rel=1e-4)
