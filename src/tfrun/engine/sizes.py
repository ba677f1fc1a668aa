"""Sizes of a batch that a step counts by, where batches have one size: Python reads a number then.

`x.shape[0]` is this replica's, and nothing tells it from another number but its value.
"""

from __future__ import annotations

from typing import Any

from tfrun.engine.loss_reader import known
from tfrun.engine.loss_terms import Term
from tfrun.engine.losses import Losses


def is_size(losses: Losses, value: Any) -> bool:
    """Whether a number is how many samples this replica has."""
    size = losses.walk.batch
    number = known(value) if size not in (None, 1) else None
    return number is not None and number.shape == () and number == size


def with_all_counted(losses: Losses, value: Any) -> tuple[Any, bool]:
    """What a variable is assigned, of no samples but perhaps their number; and whether it is whole.

    It is the same on all replicas else.
    """
    op = losses.op(value)
    if op is None or not losses.alone or op.type not in ("AddV2", "Add") or not losses.can_sum():
        return value, False
    counted = next((each for each in op.inputs if is_size(losses, each)), None)
    if counted is None:
        return value, False
    with losses.unseen():
        total = losses.sums([(counted, Term.COUNT)])[id(counted)]
        return value + (total - counted), True
