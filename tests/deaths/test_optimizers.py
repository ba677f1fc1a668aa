"""Each of Keras's optimizers computes on any number of workers what it computes in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_deaths import OPTIMIZERS

SCRIPT = Path(__file__).parent / "scripts" / "optimizers.py"
DIGITS = 2e-5  # of what is printed with six


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_optimizer_computes_what_it_computes_in_plain_python(jobs) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TFRUN_")}
    plain = subprocess.run(
        [sys.executable, SCRIPT],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert plain.returncode == 0, plain.stderr
    expected = found(plain.stdout)
    assert sorted(expected) == sorted(OPTIMIZERS)
    for workers in (1, 2, 3):
        done = jobs.run("-n", workers, SCRIPT)
        assert done.returncode == 0, done.stderr
        assert "TFRUN-" not in done.stderr, done.stderr
        many = found(done.stdout)
        wrong = {n: (v, expected[n]) for n, v in many.items() if v != near(expected[n])}
        assert many.keys() == expected.keys() and not wrong, f"{workers} workers: {wrong}"


def found(printed: str) -> dict[str, list[float]]:
    rows = (line.split("\t")[1:] for line in printed.splitlines() if line.startswith("found"))
    return {name: [float(number) for number in numbers] for name, *numbers in rows}


def near(numbers: list[float]):
    return pytest.approx(numbers, rel=DIGITS)
