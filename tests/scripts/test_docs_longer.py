"""The documentation's jobs that print nothing to compare, or take longer, do end well."""

from __future__ import annotations

import pytest

from docs_blocks import ROOT, blocks, pages_with, run_page


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages_with("run=net"))
def test_commands(page, jobs):
    # A page that has no script of its own means any.
    (script,) = [block for block in blocks(ROOT / "README.md") if block.mark == "file=train.py"]
    jobs.script(script.text)
    run_page(page, "run=net", jobs.directory, jobs.environment)
