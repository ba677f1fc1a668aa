"""Adagrad reads the accumulators of the rows that it updates, not all of them.

Given `tf.IndexedSlices`, Keras's Adagrad writes single rows of the accumulator and of the table,
but takes the square root of all accumulators on the way: of a million rows of 32, two copies of
128 MB and a pass over each. The other rows of that are used by nobody. SGD needs no such thing;
momentum, RMSprop and Adam change every row at every step, and so does Keras. The bits are Keras's,
but for `jit_compile=True`: XLA rounds what it fuses in its own way.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras import optimizers
from keras.src import ops

from tfrun.patches import row_reads


def read_accumulators_by_rows() -> None:
    """Has `keras.optimizers.Adagrad` update rows from rows, with its own arithmetic; once."""
    cls: Any = optimizers.Adagrad
    original = cls.update_step
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def update_step(self, gradient, variable, learning_rate):
        is_rows = isinstance(gradient, tf.IndexedSlices)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        table = row_reads.table_of(accumulator) if is_rows else None
        if table is None:
            original(self, gradient, variable, learning_rate)
            return
        rate = ops.cast(learning_rate, variable.dtype)
        own: Any = ops.cast(gradient, variable.dtype)
        self.assign_add(accumulator, ops.square(own))
        # A row that the gradient has twice is read twice, after both additions, as Keras does.
        seen = table.sparse_read(own.indices)
        # Of a quotient by a square root TensorFlow's graphs make a product with its reciprocal,
        # whose last bit is another one: the check of the shape stands between them.
        roots: Any = ops.sqrt(ops.add(seen, self.epsilon))
        roots = tf.ensure_shape(roots, [None, *variable.shape[1:]])
        steps: Any = ops.divide(ops.multiply(rate, own.values), roots)
        self.assign_sub(variable, tf.IndexedSlices(steps, own.indices, own.dense_shape))

    cls.update_step = update_step
