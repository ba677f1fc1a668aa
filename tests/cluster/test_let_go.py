"""A script that calls `fit` again and again does not grow."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from conftest import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "let_go.py"


def test_what_was_read_goes_when_the_script_lets_go_of_it(jobs: Jobs) -> None:
    result = jobs.run("-n", 2, "--threads-per-worker", 1, SCRIPT)
    assert result.returncode == 0, result.stderr
    (gone,) = re.findall("GONE (.*)", result.stdout)
    assert all(ast.literal_eval(gone).values()), gone
