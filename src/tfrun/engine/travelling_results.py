"""Has what a loop's step reduces after its update travel with the gradients, as metrics do.

Most steps of the script's own end with `strategy.reduce` of their losses. By itself that would be a
sum of its own, after the update: one more wait for all in each step; and where a worker dies before
it, nobody could compute its loss any more, as the weights have changed. While a step is traced
nothing has run yet, so what it reduces takes a place that was kept for it among what the update
sums; unless it would have to wait for the update (see counted_after.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfrun.engine import counted_after
from tfrun.engine.commit import AFTER_UPDATE

MOST_NUMBERS = 32  # that are kept for results: losses are a few
# So many bits of a whole number travel as one float32, which counts up to 2^24.
_BITS = 12
_MOST_REPLICAS = 1 << 24 - _BITS
_PARTS = {tf.float32: 1, tf.int32: 3, tf.int64: 6}
_ATTRIBUTE = "_tfrun_results"  # of a graph


@dataclass
class _Kept:
    """The place that the newest update of a graph keeps.

    Attributes:
      travels: what is handed in.
      taken: by what, as it travels.
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


def sums_of(values: Sequence[Any], replicas: int) -> list[tf.Tensor] | None:
    """The sums over all replicas of values that a step reduces; None where they do not travel.

    Args:
      values: tensors, or what else may be reduced.
      replicas: of the job.
    """
    graph = tf.compat.v1.get_default_graph()
    kept = getattr(graph, _ATTRIBUTE, None)
    if kept is None or kept.sums is None or replicas > _MOST_REPLICAS:
        return None
    if not all(_may_travel(value, graph) for value in values):
        return None
    with tf.device("CPU:0"), tf.control_dependencies(None):
        flat = [_as_floats(value) for value in values]
        every = [*kept.taken, *flat]
        left = MOST_NUMBERS - sum(map(_size, every))
        if left < 0:
            return None
        numbers = tf.concat([*every, tf.zeros([left])], axis=0)
        if not _without_waiting(numbers, lambda: counted_after.exchange(kept.travels, numbers)):
            return None
    end, found = sum(map(_size, kept.taken)), []
    with tf.device("CPU:0"):
        for value, part in zip(values, flat, strict=True):
            begin, end = end, end + _size(part)
            found.append(_from_floats(kept.sums[begin:end], value))
    kept.taken = every
    return found


def _may_travel(value: Any, graph: Any) -> bool:
    return (
        isinstance(value, tf.Tensor)
        and value.dtype in _PARTS
        and getattr(value, "graph", None) is graph
        and value.shape.is_fully_defined()
    )


def _as_floats(value: tf.Tensor) -> tf.Tensor:
    """A value as what may be added up as float32, flat."""
    while value.op.type == "Identity":  # which may wait for something
        value = value.op.inputs[0]
    left, parts = tf.reshape(value, [-1]), []
    if value.dtype == tf.float32:
        return left
    for _ in range(_PARTS[value.dtype] - 1):
        parts.append(tf.bitwise.bitwise_and(left, (1 << _BITS) - 1))
        left = tf.bitwise.right_shift(left, _BITS)
    return tf.cast(tf.concat([*parts, left], axis=0), tf.float32)  # the last one has the sign


def _from_floats(total: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """The inverse of `_as_floats` for a sum, which has the shape and dtype of `value`."""
    if value.dtype != tf.float32:
        parts = tf.split(tf.cast(total, value.dtype), _PARTS[value.dtype])
        total = tf.add_n([tf.bitwise.left_shift(p, _BITS * i) for i, p in enumerate(parts)])
    return tf.reshape(total, value.shape)


def _without_waiting(value: tf.Tensor, exchange: Callable[[], bool]) -> bool:
    """Has what a value is made of wait for the update no longer, if it can be exchanged then."""
    seen, left, waiting = set[Any](), [value.op], dict[Any, Any]()
    while left:
        op = left.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.name.rsplit("/", 1)[-1].startswith(AFTER_UPDATE):
            waiting[op] = list(op.control_inputs)
            op._remove_all_control_inputs()
        else:
            left += [tensor.op for tensor in op.inputs]
    if exchange():
        return True
    for op, before in waiting.items():
        op._add_control_inputs(before)
    return False


def _size(flat: tf.Tensor) -> int:
    return int(flat.shape[0] or 0)
