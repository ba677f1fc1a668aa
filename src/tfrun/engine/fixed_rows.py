"""Gradients of rows that no batch chooses: those of a table of positions, looked up by 0, 1, 2, ….

The gradient of a lookup holds a row for each that was looked up. Those of many workers are put one
behind the other, as one worker would have looked up all of them; Keras's Adam and Adagrad square
each for itself. But who looks up the same rows whatever its data, looks each up once on one worker
and once on each of many: there the rows are to be added up first.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})


def are_fixed(gradient: Any) -> bool:
    """Whether the rows of a gradient are the same on all replicas, in one order.

    Args:
      gradient: a tensor or `tf.IndexedSlices`, in a graph that all replicas trace alike. Of what
        was computed eagerly nobody knows any more what it was computed from.
    """
    if not isinstance(gradient, tf.IndexedSlices) or gradient.values.shape[0] is None:
        return False
    waiting: list[Any] = [gradient.indices]
    seen: set[int] = set()
    while waiting:
        tensor = waiting.pop()
        if not tf.is_symbolic_tensor(tensor):
            return False
        op = tensor.op
        if id(op) in seen or op.type in _OF_SHAPES:
            continue
        seen.add(id(op))
        if op.type.startswith("Placeholder"):
            outer = _captured(tensor)
            if outer is None or outer.dtype in (tf.resource, tf.variant):
                return False
            if tf.is_symbolic_tensor(outer):
                waiting.append(outer)
        elif op.op_def.is_stateful:  # data, noise, or a variable
            return False
        else:
            waiting.extend(op.inputs)
    return True


def _captured(tensor: Any) -> Any | None:
    """What a function has taken from around it as `tensor`; None for an argument."""
    captures = getattr(tensor.graph, "captures", ())
    return next((outer for outer, inner in captures if inner is tensor), None)
