"""A lookup reads the rows that it looks up, not the whole table.

Keras's `ops.take`, and so its `Embedding`, is `tf.gather(tf.convert_to_tensor(table), ids)`. An
optimizer that writes single rows puts TensorFlow's variable into a mode in which each whole read
is a copy (tensorflow/core/framework/resource_var.h, `copy_on_read_mode`): every step copies the
table, 128 MB for a million rows of 32. `tf.gather(variable, ids)` copies the rows alone, as does
legacy Keras. On parameter servers whole reads would cross the wire besides.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras.src import backend
from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope
from tensorflow.python.distribute import tpu_values, values
from tensorflow.python.ops import resource_variable_ops

from tfrun.ps import variables

_READ_WHOLE = "_tfrun_read_whole"


def read_rows_only(original):
    """`keras.ops.take` (and `Embedding`) reads rows where it is given a variable."""

    def take(x, indices, axis=None):
        table = table_of(x) if axis == 0 else None
        ids = None if table is None else _ids(indices)
        if ids is None:
            return original(x, indices, axis=axis)
        ids = tf.where(ids < 0, ids + tf.cast(x.shape[0], ids.dtype), ids)
        return x._maybe_autocast(variables.lookup(table, ids))

    return take


def mark_tied_tables(original):
    """The tables of `ReversibleEmbedding` and its like are read as ever: they are read whole too.

    They say so by an attribute `tie_weights`.
    """

    def build(self, *args, **kwargs):
        original(self, *args, **kwargs)
        table = getattr(self, "_embeddings", None)
        if getattr(self, "tie_weights", False) and table is not None:
            setattr(table, _READ_WHOLE, True)

    return build


def table_of(x: Any) -> Any | None:
    """Returns TensorFlow's variable behind `x` when its rows are to be read; else None.

    Args:
      x: what is looked up in.
    """
    if not variables.is_keras(x):
        return None
    scope: Any = get_stateless_scope()
    if in_stateless_scope() and id(x) in scope.state_mapping:
        return None  # somebody has stated its value
    if variables.strategy_of(x) is not None:
        return variables.raw(x)
    # What else reads all of it in a step makes its gradient dense, and quantized tables have none:
    # no optimizer writes single rows, whole reads stay free, and reads of rows would end that.
    read_whole = x.regularizer is not None or getattr(x, _READ_WHOLE, False)
    if read_whole or not backend.is_float_dtype(x.dtype):
        return None
    return _local(variables.raw(x))


def _local(variable: Any) -> Any | None:
    """The copy of `variable` that is read here; None when it cannot be read by rows."""
    if isinstance(variable, values.DistributedVariable):
        # Not what is summed when it is read; and a TPU's program reads its own copy.
        is_tpu = isinstance(variable, tpu_values.TPUVariableMixin)
        is_mirrored = isinstance(variable, values.MirroredVariable)
        # `tf.gather` of such a variable is a whole read too: it has no `sparse_read`.
        return variable._get_on_device_or_primary() if is_mirrored and not is_tpu else None
    return variable if isinstance(variable, resource_variable_ops.BaseResourceVariable) else None


def _ids(indices: Any) -> tf.Tensor | None:
    """`indices` as the dense int32 or int64 that a read of rows takes; None for others."""
    if isinstance(indices, tf.SparseTensor | tf.RaggedTensor):
        return None
    ids: Any = backend.convert_to_tensor(indices)
    return ids if ids.dtype in (tf.int32, tf.int64) else None
