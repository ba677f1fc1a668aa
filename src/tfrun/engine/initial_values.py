"""The values that variables begin with: on all workers the chief's.

To be told them they meet, and where a worker has died, or has come to the job later than the
others, they do not. But nobody has to be told of zeros, such as an optimizer's slots and what
metrics count: not at all where a loop has begun, and else by a word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.engine import loop_traces
from tfrun.engine.host_collective_ops import Calls

MANY = 16_384  # numbers: to ask first whether they are zeros costs as much as a few
_evaluates = False  # Keras does, between two steps of a loop
_makes_alone = False  # variables, when a peer has gone
_made_alone = False  # it has made some


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    """While it lasts Keras evaluates between two steps of a loop of the script's own."""
    global _evaluates
    _evaluates = True
    try:
        yield
    finally:
        _evaluates = False


def make_alone(*, wanted: bool) -> None:
    """Has variables be made to the end when a peer goes meanwhile, with values of this worker's.

    Else a layer, or an optimizer, would have some of its variables, and nobody knew which.
    """
    global _makes_alone
    _makes_alone = wanted


def made_alone() -> bool:
    """Whether some have been, since this was asked last: those of others may differ."""
    global _made_alone
    made, _made_alone = _made_alone, False
    return made


def initial_value(calls: Calls, kwargs: Mapping[str, Any]) -> tf.Tensor:
    """The chief's initial value of a variable, on every worker.

    Args:
      calls: of a strategy.
      kwargs: the arguments of the variable.
    """
    global _made_alone
    value: Any = kwargs["initial_value"]
    value = value() if callable(value) else value
    value = getattr(value, "wrapped_value", value)  # of a checkpoint that is being restored
    mine = tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
    is_known = not tf.is_symbolic_tensor(mine)
    if (_evaluates or loop_traces.is_tracing()) and is_known and not np.any(mine):
        return mine
    try:
        return _told_at_once(calls, mine) if is_known else calls.broadcast(mine)
    except tf.errors.OpError:
        if not _makes_alone:
            raise
        _made_alone = True
        return mine


def _told_at_once(calls: Calls, mine: tf.Tensor) -> tf.Tensor:
    """The chief's, given this worker's own. Large ones take long to send, and to make room for."""
    if mine.shape.num_elements() < MANY or not mine.dtype.is_numpy_compatible:
        return calls.broadcast(mine)
    is_zero = not np.any(mine)
    if calls.broadcast(tf.constant(is_zero)):
        return mine if is_zero else tf.zeros_like(mine)
    return calls.broadcast(mine)
