"""When the next checkpoint of a training is due that goes on after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.when_due import parse
from tfrun.state.durable_checkpoints import Durable


@pytest.mark.parametrize(
    ("every", "on_disk", "first"),
    [
        ("10", [10], 20),
        ("10", [], 23),  # what there was is on the disk of another chief
        ("10", [500], 23),  # of a training before, or of a model before
        ("10", [3, 500], 14),  # overdue: the one of step 13 was cut off
        ("1", [13], 14),
        ("10m", [10], None),
    ],
)
def test_a_restarted_chief_counts_from_the_newest_checkpoint(
    tmp_path: Path, every: str, on_disk: list[int], first: int | None
) -> None:
    store = Store(tmp_path)
    for step in on_disk:
        store.write(step, {}, {})
    store.close()
    saving = Durable(tmp_path, parse(every), 5)
    saving.resumes(2, 13)
    due = (step for step in range(14, 60) if saving.is_due(2, step, epoch_ended=False))
    assert next(due, None) == first


def test_an_epoch_that_ended_before_the_restart_is_not_saved_twice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(42, {}, {})
    store.close()
    saving = Durable(tmp_path, parse("epoch"), 5)
    saving.resumes(0, 42)
    assert not saving.is_due(0, 42, epoch_ended=True)
    assert saving.is_due(0, 84, epoch_ended=True)
