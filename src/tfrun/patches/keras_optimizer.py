"""Keras's optimizers reduce gradients first, and update on parameter servers what these hold.

Why gradients are summed before anything else: see engine/gradient_sums.py.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras.src import ops

from tfrun.engine import gradient_sums, outside_run, replica, scaled_rate
from tfrun.patches import keras_layers
from tfrun.ps import updates, variables


def scale_rate(original):
    """While weights are updated, the rate is the one that belongs to the job's batch."""

    def apply(self, grads, trainable_variables=None):
        with scaled_rate.updating(self):
            return original(self, grads, trainable_variables)

    return apply


def take_scaled_rate(original):
    """See engine/scaled_rate.py."""

    def _get_current_learning_rate(self):
        return scaled_rate.rate(self, functools.partial(original, self))

    return _get_current_learning_rate


def reduce_first(original):
    """The outermost `apply` of a step sums the gradients over the replicas."""

    def apply(self, grads, trainable_variables=None):
        while gradient_sums.at_first_update:
            gradient_sums.at_first_update.pop()()
        run = replica.current()
        if run is None:
            alone = outside_run.strategy_to_run_in(self, trainable_variables)
            if alone is not None:
                with alone.scope():
                    return alone.run(functools.partial(self.apply, grads, trainable_variables))
            stated = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
            gradient_sums.check_scope(self, stated, trainable_variables)
            if stated is None and trainable_variables is not None and not self.built:
                trainable_variables = list(trainable_variables)
                with tf.init_scope():  # else what it assigns there is part of a trace
                    self.build(trainable_variables)
        if run is None or run.updating:
            return original(self, grads, trainable_variables)
        trained = list(
            self._trainable_variables if trainable_variables is None else trainable_variables
        )
        return gradient_sums.updated(
            run, self, list(grads), trained, lambda g: original(self, g, trainable_variables)
        )

    return apply


def reduce_pairs_first(original):
    """`apply_gradients` does so too: it clips before it calls `apply`."""

    def apply_gradients(self, grads_and_vars):
        run = replica.current()
        if run is None or run.updating:
            return original(self, grads_and_vars)
        pairs = list(grads_and_vars)
        grads, trained = [g for g, _ in pairs], [v for _, v in pairs]
        return gradient_sums.updated(
            run, self, grads, trained, lambda g: original(self, zip(g, trained, strict=True))
        )

    return apply_gradients


def reduce_once(original):
    """What is reduced already, Keras does not reduce again."""

    def _all_reduce_sum_gradients(self, grads_and_vars):
        run = replica.current()
        if run is not None and run.updating:
            return list(grads_and_vars)
        return original(self, grads_and_vars)

    return _all_reduce_sum_gradients


def update_on_servers(original):
    """Gradients go to the servers, and each server updates what it holds."""

    def apply(self, grads, trainable_variables=None):
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        given = list(given) if given is not None else []
        if not given or variables.strategy_of(given[0]) is None:
            return original(self, grads, trainable_variables)
        return updates.apply(self, list(grads), given)

    return apply


def overwrite_on_servers(original):
    """Gives weights their averages at the end of training, those in shards too."""

    def overwrite(self, trainable_variables):
        given = list(trainable_variables)
        if not given or variables.strategy_of(given[0]) is None:
            return original(self, trainable_variables)
        for variable, average in zip(given, self._model_variables_moving_average, strict=True):
            if average is not None:
                pairs = zip(variables.parts(variable), variables.parts(average), strict=True)
                for part, mean in pairs:
                    part.assign(mean.read_value())
        return None

    return overwrite


def read_accumulators_by_rows(original):
    """Adagrad reads the accumulators of the rows that it updates, not all of them.

    Given `tf.IndexedSlices`, Keras's Adagrad writes single rows of the accumulator and of the
    table, but takes the square root of all accumulators on the way: of a million rows of 32, two
    copies of 128 MB and a pass over each. The other rows of that are used by nobody. SGD needs no
    such thing; momentum, RMSprop and Adam change every row at every step, and so does Keras. The
    bits are Keras's, but for `jit_compile=True`: XLA rounds what it fuses in its own way.
    """

    def update_step(self, gradient, variable, learning_rate):
        is_rows = isinstance(gradient, tf.IndexedSlices)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        table = keras_layers.table_of(accumulator) if is_rows else None
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

    return update_step
