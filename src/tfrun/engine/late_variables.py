"""Variables that are made when a loop has begun: slots of an optimizer, and what metrics count.

All workers begin with the chief's values. To be told them they meet, and where a worker has died,
or has come to the job later than the others, they do not. But nobody has to be told of zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.engine import host_collective, loop_traces

_evaluates = False  # Keras does, between two steps of a loop


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    """While it lasts Keras evaluates between two steps of a loop of the script's own."""
    global _evaluates
    _evaluates = True
    try:
        yield
    finally:
        _evaluates = False


def initial_value(calls: Any, kwargs: Mapping[str, Any]) -> Any:
    """The chief's initial value of a variable, on every worker.

    Args:
      calls: of a strategy.
      kwargs: the arguments of the variable.
    """
    if not (_evaluates or loop_traces.is_tracing()):
        return host_collective.initial_value(calls, kwargs)
    value: Any = kwargs["initial_value"]
    value = value() if callable(value) else value
    if not tf.is_symbolic_tensor(value) and not np.any(value):
        return tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
    return host_collective.initial_value(calls, {**kwargs, "initial_value": value})
