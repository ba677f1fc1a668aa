"""Goes back through what a step has computed, to all that has a part in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tfrun.engine.losses import Losses
from tfrun.engine.variable_values import copies


def upstream(losses: Losses, tensors: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields each tensor that has a part in these and was computed, once, with its `Op`."""
    seen: set[int] = set()
    left = list(tensors)
    while left:
        here = left.pop()
        op = losses.op(here)
        if op is None or id(here) in seen:
            continue
        seen.add(id(here))
        yield here, op
        left += op.inputs


def handles_of(variables: Iterable[Any]) -> set[int]:
    """By which a step reads Keras variables, as `id`s."""
    return {id(copy.handle) for variable in variables for copy in copies(variable)}


def reads(losses: Losses, op: Any, handles: Collection[int]) -> bool:
    """Whether an `Op` reads one of the variables that have these handles."""
    return op.type == "ReadVariableOp" and id(losses.walk.source(op.inputs[0])) in handles
