"""`float(optimizer.learning_rate)`, `int(…)` and `np.array(…)` of variables under a strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.distribute import values


def let_variables_be_numbers() -> None:
    """Gives distributed variables the conversions that `tf.Variable` has; once.

    Keras's `Variable.__float__` is `float(self.value)`, and TensorFlow's `DistributedVariable`
    has `numpy()` but neither `__int__` nor `__float__`: "TypeError: float() argument must be a
    string or a real number, not 'MirroredVariable'". Its `__array__` gives a tensor, which numpy
    refuses. Keras's logs keep such a value as it is: a metric whose `result` returns the `value` of
    its variable would be read later, on one worker alone, and that needs them all.
    """
    cls = values.DistributedVariable
    for name, convert in (("__int__", int), ("__float__", float)):
        if not hasattr(cls, name):
            setattr(cls, name, lambda self, convert=convert: convert(self.numpy()))
    setattr(cls, "__array__", _as_array)  # noqa: B010 (unknown to type checkers)


def _as_array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    return np.array(self.numpy(), dtype=dtype)  # numpy() of a tensor's own memory: never shared
