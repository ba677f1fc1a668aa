"""The documentation's commands that run jobs do what it says."""

from __future__ import annotations

import pytest

from docs_blocks import pages_with, run_page


@pytest.mark.parametrize("page", pages_with("run=cluster"))
def test_commands(page, jobs):
    run_page(page, "run=cluster", jobs.directory, jobs.environment)
