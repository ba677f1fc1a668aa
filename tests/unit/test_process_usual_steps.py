"""What a worker takes for a usual step of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfrun.process import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def made(tmp_path: Path, clock: list[float], *steps: float) -> progress.Progress:
    """Returns that of a worker which has made steps that took so long, and is in the next one."""
    mine = progress.Progress(tmp_path / "progress")
    mine.begins()
    for seconds in steps:
        mine.step_begins()
        clock[0] += seconds
        mine.step_returned()
    mine.step_begins()
    return mine


def test_a_first_step_is_none(tmp_path: Path, clock: list[float]) -> None:
    mine = made(tmp_path, clock)
    assert mine.is_tracing and not mine.is_in_usual_step()


@pytest.mark.parametrize("steps", [(12.8,), (12.8, 12.0), (9.0, *[1.0] * 30)])
def test_as_long_as_the_one_before_is_usual(
    tmp_path: Path, clock: list[float], steps: tuple[float, ...]
) -> None:
    mine = made(tmp_path, clock, *steps)
    assert not mine.is_tracing and mine.is_in_usual_step()
    clock[0] += 1.1 * steps[-1]
    assert mine.is_in_usual_step()
    clock[0] += 10 * steps[-1]
    assert not mine.is_in_usual_step()
    mine.step_returned()
    assert not mine.is_in_usual_step()  # callbacks have their own time


def test_a_training_that_begins_has_made_no_step(tmp_path: Path) -> None:
    mine = progress.Progress(tmp_path / "progress")

    def step() -> int | None:
        reading = progress.read(tmp_path / "progress")
        return reading and reading.step

    mine.begins()
    mine.step_begins()
    mine.step_returned(15)
    assert step() == 15
    mine.begins()
    mine.step_begins()
    assert step() == 0
