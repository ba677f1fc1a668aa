"""Has what a loop's step reduces after its update travel with the gradients, as metrics do.

Most steps of the script's own end with `strategy.reduce` of their losses. By itself that would be a
sum of its own, after the update: one more wait for all in each step; and where a worker dies before
it, nobody could compute its loss any more, as the weights have changed. While a step is traced
nothing has run yet, so what it reduces takes a place that was kept for it among what the update
sums; unless it would have to wait for the update (see counted_after.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfrun.engine import counted_after

MOST_NUMBERS = 16  # that are kept for results: losses are a few


_ATTRIBUTE = "_tfrun_results"  # of a graph


@dataclass
class _Kept:
    """The place that the newest update of a graph keeps.

    Attributes:
      travels: what is handed in.
      taken: by what, flat.
      sums: what comes of it, for each replica.
    """

    travels: counted_after.Travels
    taken: list[tf.Tensor] = field(default_factory=list)
    sums: Any = None


def place() -> list[tf.Tensor]:
    """Where an update is traced: what is handed in for results; nothing where it is eager."""
    if tf.executing_eagerly():
        return []
    with tf.device("CPU:0"):
        handed_in, travels = counted_after.travelling(tf.zeros([MOST_NUMBERS]))
    assert travels is not None
    setattr(handed_in.graph, _ATTRIBUTE, _Kept(travels))
    return [handed_in]


def summed(sums: Sequence[tf.Tensor]) -> None:
    """What has come of that, for each replica."""
    for total in sums:
        getattr(total.graph, _ATTRIBUTE).sums = total


def sums_of(values: Sequence[Any]) -> list[tf.Tensor] | None:
    """The sums over all replicas of values that a step reduces; None where they do not travel.

    Args:
      values: tensors, or what else may be reduced.
    """
    graph = tf.compat.v1.get_default_graph()
    kept = getattr(graph, _ATTRIBUTE, None)
    if kept is None or kept.sums is None or not all(_may_travel(v, graph) for v in values):
        return None
    with tf.device("CPU:0"), tf.control_dependencies(None):
        flat = [tf.reshape(_before_update(value), [-1]) for value in values]
        every = [*kept.taken, *flat]
        left = MOST_NUMBERS - sum(map(_size, every))
        if left < 0:
            return None
        if not counted_after.exchange(kept.travels, tf.concat([*every, tf.zeros([left])], axis=0)):
            return None
    end, found = sum(map(_size, kept.taken)), []
    with tf.device("CPU:0"):
        for value, part in zip(values, flat, strict=True):
            begin, end = end, end + _size(part)
            found.append(tf.reshape(kept.sums[begin:end], value.shape))
    kept.taken = every
    return found


def _may_travel(value: Any, graph: Any) -> bool:
    return (
        isinstance(value, tf.Tensor)
        and value.dtype == tf.float32
        and getattr(value, "graph", None) is graph
        and value.shape.is_fully_defined()
    )


def _before_update(value: tf.Tensor) -> tf.Tensor:
    """The same number, as it is before what only waits for the update (see commit.py)."""
    while value.op.type == "Identity":
        value = value.op.inputs[0]
    return value


def _size(flat: tf.Tensor) -> int:
    return int(flat.shape[0] or 0)
