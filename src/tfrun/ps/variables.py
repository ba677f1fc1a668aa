"""The variables of a parameter-server strategy: their shards and rows, and their atomic changes.

TensorFlow's `assign_add` of a whole variable is atomic. `scatter_add` is not: two of them on one
row may lose one, because its kernel takes no exclusive lock
(tensorflow/core/kernels/resource_variable_ops.cc, ResourceScatterUpdateOp). `scatter_nd_add` takes
one.
"""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf
from keras.src import backend
from tensorflow.python.distribute.sharded_variable import ShardedVariable


def strategy_of(variable: Any) -> Any | None:
    """Returns the parameter-server strategy whose servers hold a variable; None for others."""
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


def split(variable: Any, delta: tf.Tensor) -> list[tf.Tensor]:
    """Returns what to add to each of `parts(variable)` to add `delta` to the whole."""
    pieces = parts(variable)
    if len(pieces) == 1:
        return [delta]
    full = tf.broadcast_to(delta, variable.shape)
    return tf.split(full, [piece.shape[0] for piece in pieces])


def lookup(table: Any, ids: tf.Tensor) -> tf.Tensor:
    """Returns the rows `ids` of a table on the servers, gathered there.

    Args:
      table: a variable or a sharded one, of shape [n, ...].
      ids: integers of any shape, 0 to n - 1.
    """
    if not is_sharded(table):
        return table.sparse_read(ids)
    flat = tf.reshape(ids, [-1])
    ends = list(itertools.accumulate(part.shape[0] for part in table.variables))
    rows, places = [], []
    for part, first, end in zip(table.variables, [0, *ends[:-1]], ends, strict=True):
        here = tf.reshape(tf.where((flat >= first) & (flat < end)), [-1])
        rows.append(part.sparse_read(tf.gather(flat, here) - tf.cast(first, flat.dtype)))
        places.append(here)
    back = tf.argsort(tf.concat(places, 0))
    found = tf.gather(tf.concat(rows, 0), back)
    return tf.reshape(found, tf.concat([tf.shape(ids), tf.shape(found)[1:]], 0))


class ShardGradients(list):
    """The gradient of a sharded variable: one for each shard, in order."""


def joined(pieces: list[Any]) -> ShardGradients | None:
    """The gradients of the shards as that of the whole; None where no shard has one."""
    return None if all(piece is None for piece in pieces) else ShardGradients(pieces)
