"""Data that a script has distributed is what it is in TensorFlow, where workers may stay."""

from __future__ import annotations

import re

import pytest
from workers import SCRIPTS, TFRUN, shown_by


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["functions", "state"])
def test_every_use_gives_the_same_losses(what: str) -> None:
    found = []
    for option in ("--no-in-place", "--fresh"):  # the second one says nothing about staying
        command = [TFRUN, "-n", "2", "--seed", "3", "--threads-per-worker", "1", option]
        shown = shown_by([*command, str(SCRIPTS / "distributed_uses.py"), what], {}, timeout=120)
        found += re.findall("OUT .*", shown)
    assert len(found) == 2 and found[0] == found[1], found
    assert "nan" not in found[0]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("data", ["ours", "pipeline", "distributed"])
def test_who_comes_to_have_one_replica_for_good_reads_on_as_before(data: str) -> None:
    """A validation of the script's own between two epochs may be the reason."""
    command = [TFRUN, "-n", "2", "--threads-per-worker", "1", "--fresh"]
    script = str(SCRIPTS / "one_for_good_in_loop.py")
    shown = shown_by([*command, script, data], {}, timeout=120)
    epoch = "[120.0, 376.0, 632.0]"
    assert f"READ {epoch} {epoch}" in shown, shown
