"""What the variables of a parameter-server strategy are, and how they are changed atomically.

TensorFlow's `assign_add` of a whole variable is atomic. `scatter_add` is not: two of them on one
row may lose one, because its kernel takes no exclusive lock
(tensorflow/core/kernels/resource_variable_ops.cc, ResourceScatterUpdateOp). `scatter_nd_add` takes
one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras.src import backend
from tensorflow.python.distribute.sharded_variable import ShardedVariable


def strategy_of(variable: Any) -> Any | None:
    """Returns the parameter-server strategy whose servers hold `variable`; None for others.

    Args:
      variable: a Keras variable, or one of TensorFlow.
    """
    value = getattr(variable, "_value", None) if is_keras(variable) else variable
    if isinstance(value, ShardedVariable):
        value = value.variables[0]
    # Not getattr: a distributed variable that lacks an attribute enters its strategy's scope.
    return getattr(value, "__dict__", {}).get("_tfrun_parameter_server")


def is_keras(variable: Any) -> bool:
    return isinstance(variable, backend.Variable)


def raw(variable: Any) -> Any:
    """Returns TensorFlow's variable behind a Keras variable, past any scope of values."""
    return variable._value if is_keras(variable) else variable


def parts(variable: Any) -> list[Any]:
    """Returns the variables that hold `variable`: its shards, or itself."""
    value = raw(variable)
    return list(value.variables) if isinstance(value, ShardedVariable) else [value]


def is_sharded(variable: Any) -> bool:
    return isinstance(raw(variable), ShardedVariable)


def first_rows(variable: Any) -> list[int]:
    """Returns the number of the first row of each shard."""
    firsts, row = [], 0
    for part in parts(variable):
        firsts.append(row)
        row += part.shape[0]
    return firsts


def add(target: Any, delta: Any, rows: Any = None) -> tf.Operation:
    """Adds `delta` to TensorFlow's variable `target` in one atomic op.

    Args:
      target: the variable.
      delta: of its shape; with `rows`, of shape [k, ...].
      rows: int64 of shape [k], each one once; None for the whole variable.
    """
    delta = tf.cast(delta, target.dtype)
    if rows is None:
        return target.assign_add(delta, read_value=False)
    return tf.raw_ops.ResourceScatterNdAdd(
        ref=target.handle, indices=tf.expand_dims(rows, 1), updates=delta
    )


def repair_assign_add() -> None:
    """Makes `keras.Variable.assign_add` one op where servers hold the variable; once.

    Sharded variables become arrays too, which TensorFlow's are not.

    Keras: `assign(self + value)`. Between the read and the write other workers' additions are
    lost, those of metrics among them (keras-team/keras#18624).
    """
    cls = backend.Variable
    if hasattr(cls.assign_add, "__wrapped__"):
        return
    # Saving a Keras model takes `np.array` of each variable.
    sharded: Any = ShardedVariable
    sharded.__array__ = lambda self, *args, **kwargs: np.asarray(self.numpy(), *args)
    cls.assign_add = _atomic(cls.assign_add, 1)
    cls.assign_sub = _atomic(cls.assign_sub, -1)


def _atomic(original, sign: int):
    import functools

    from keras.src.backend.common.stateless_scope import in_stateless_scope

    @functools.wraps(original)
    def change(self, value):
        if strategy_of(self) is None or in_stateless_scope():
            return original(self, value)
        delta = tf.cast(self._convert_to_tensor(value, dtype=self._dtype), self._value.dtype)
        for part, own in zip(parts(self), split(self, delta), strict=True):
            part.assign_add(own if sign > 0 else -own)
        return self.value

    return change


def split(variable: Any, delta: tf.Tensor) -> list[tf.Tensor]:
    """Returns what to add to each of `parts(variable)` to add `delta` to the whole."""
    pieces = parts(variable)
    if len(pieces) == 1:
        return [delta]
    full = tf.broadcast_to(delta, variable.shape)
    return tf.split(full, [piece.shape[0] for piece in pieces])
