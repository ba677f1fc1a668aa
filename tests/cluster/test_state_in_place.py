"""Nobody holds on to what large models have no memory for twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "state_in_place.py"


@pytest.mark.parametrize("option", ["--in-place", "--no-in-place"])
def test_weights_are_updated_where_they_stand(jobs: Jobs, option: str) -> None:
    """The kernel and its two of Adam; what sums lie in is free again after each step."""
    result = jobs.run("-n", 2, "--threads-per-worker", 1, option, SCRIPT)
    assert result.returncode == 0, result.stderr
    found = re.findall("FOUND (.*)", result.stdout)
    assert found == ["0 12 3 free 1", "1 13 3 free 1"], result.stdout
