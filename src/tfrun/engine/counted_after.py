"""Has a step's sums take what metrics hold at its end, where they count after the update.

What metrics have counted travels with the gradients (see commit.py). But a step of the script's
own mostly updates the weights first, as in Keras's own guide: what travelled would lack the newest
step, and with a worker its part of that would be lost. While a step is traced nothing has run yet.
So what travels is read again where the step ends, and put in the place of what was read before the
update; unless that would have to wait for the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps
from tensorflow.python.framework import auto_control_deps_utils as utils

_TRAVELS = "tfrun_travels"


class Travels(NamedTuple):
    """What a step hands in of its metrics.

    Attributes:
      op: the `Identity` through which it goes.
      before: how many operations the graph had before it.
    """

    op: tf.Operation
    before: int


def travelling(totals: tf.Tensor) -> tuple[tf.Tensor, Travels | None]:
    """Returns the same, which may be exchanged until the step is traced; None where it is eager."""
    if tf.executing_eagerly():
        return totals, None
    before = len(totals.graph.get_operations())
    through = tf.identity(totals, name=_TRAVELS)
    return through, Travels(op=through.op, before=before)


def may_be_exchanged(tensor: tf.Tensor) -> bool:
    """Whether a tensor of a graph may come to need what nothing says yet that it needs."""
    return _TRAVELS in tensor.op.name.rsplit("/", 1)[-1]


def exchange(travels: Travels | None, totals: tf.Tensor) -> bool:
    """Has these travel instead; False, and nothing has changed, where they need the update.

    Args:
      travels: of the step's newest update.
      totals: what has been counted by now.
    """
    if travels is None or travels.op.graph is not getattr(totals, "graph", None):
        return False
    if any(op is travels.op for op in _needed(totals.op, travels.before)):
        return False
    travels.op._update_input(0, totals)
    return True


def _needed(last: tf.Operation, begin: int) -> Iterator[tf.Operation]:
    """What has to run before an operation, of those that were made from that number on.

    Also by the order in which TensorFlow will have operations run that share a variable, or that
    act on something else: tensorflow/python/framework/auto_control_deps.py. None waits for one
    that was made after it.
    """
    made = last.graph.get_operations()[begin:]
    number = {op: i for i, op in enumerate(made)}
    acting = {op for op in made if auto_control_deps.op_is_stateful(op) and not _handles(op)}
    seen, left = set[tf.Operation](), [last]
    while left:
        op = left.pop()
        if op in seen or op not in number:
            continue
        seen.add(op)
        yield op
        left += [tensor.op for tensor in op.inputs]
        left += op.control_inputs
        sharing = [other for handle in _handles(op) for other in handle.consumers()]
        others = sharing if sharing or op not in acting else acting
        # Of two that only read neither waits.
        is_read = _reads(op)
        left += [
            o
            for o in others
            if number.get(o, len(made)) < number[op] and not (is_read and _reads(o))
        ]


def _handles(op: tf.Operation) -> list[tf.Tensor]:
    return [tensor for tensor in op.inputs if tensor.dtype == tf.resource]


def _reads(op: tf.Operation) -> bool:
    return op.type in utils.RESOURCE_READ_OPS
