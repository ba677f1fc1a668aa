"""How Keras's variables are assigned, and when they begin to have a value."""

from __future__ import annotations

import functools

import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope

from tfrun.engine import (
    assigned_in_step,
    between_steps,
    commit,
    empty_step,
    keras_state,
    own_metrics,
    own_steps,
    replica,
    whole_values,
)
from tfrun.engine.local_mode import note_assignment
from tfrun.engine.scopes import default_strategy
from tfrun.ps import variables


def remember_assignments(original):
    """Every assignment of a Keras variable in a run of ours is remembered, see keras_state.py."""

    def _direct_assign(self, value):
        run = replica.current()
        if run is None:
            assign = functools.partial(keras_state.assign_outside, self, value, original)
            counts = self.aggregation == "sum"
            # No call: each step of `fit` comes by here.
            if between_steps.in_step and between_steps.newest() is None:
                return assigned_in_step.noted(assign)
            return between_steps.assigned(self, assign, counts=counts)
        if not isinstance(self._value, tf.distribute.DistributedValues):
            keras_state.refuse_own(run, self)
            return keras_state.assign_unaggregated(self, value, original)
        if run.updating:
            return keras_state.assign_here(run, self, value)
        if own_metrics.is_counted(self):
            empty_step.note_counted(run, self, value)
            value = own_metrics.to_count(run, self, value)
        value, is_whole = whole_values.to_keep(run, self, value)
        value = keras_state.unless_empty(run, self, value)
        original(self, value)
        commit.note_assignment(run, self)
        if not is_whole:
            keras_state.remember(run, self)

    return _direct_assign


def note_before(original):
    """What the chief assigns alone is put back afterwards: see engine/local_mode.py."""

    def assign(self, value):
        note_assignment(self)
        return original(self, value)

    return assign


def add_at_once(original):
    """`assign_add` and `assign_sub` are one op each where servers hold the variable.

    Keras: `assign(self + value)`. Between the read and the write other workers' additions are
    lost, those of metrics among them (keras-team/keras#18624).
    """
    adds = original.__name__ == "assign_add"

    def change(self, value):
        if variables.strategy_of(self) is None or in_stateless_scope():
            return original(self, value)
        delta = tf.cast(self._convert_to_tensor(value, dtype=self._dtype), self._value.dtype)
        for part, own in zip(variables.parts(self), variables.split(self, delta), strict=True):
            part.assign_add(own if adds else -own)
        return self.value

    return change


def begin_at_once(original):
    """Variables that a model's first step makes begin with a value, as those made before it do.

    TensorFlow would leave that to the first run of the function that is traced.
    """

    def _initialize_with_initializer(self, initializer):
        strategy = own_steps.traces_for()
        if strategy is None:
            return original(self, initializer)
        with tf.init_scope(), default_strategy(), strategy.scope():
            return original(self, initializer)

    return _initialize_with_initializer
