"""TensorFlow's variables under a strategy, and gradients by them."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import values_util

from tfrun.engine import (
    assigned_in_step,
    between_steps,
    outside_run,
    own_variables,
    script_state,
)
from tfrun.ps import variables
from tfrun.ps.variables import joined


def as_int(_original):
    """`int(optimizer.iterations)`.

    Keras's `Variable.__int__` is `int(self.value)`, and TensorFlow's `DistributedVariable` has
    `numpy()` but neither `__int__` nor `__float__`: "TypeError: float() argument must be a string
    or a real number, not 'MirroredVariable'".
    """
    return lambda self: int(self.numpy())


def as_float(_original):
    """`float(optimizer.learning_rate)`."""
    return lambda self: float(self.numpy())


def as_array(_original):
    """`np.array(variable)`: TensorFlow gives numpy a tensor, which numpy refuses.

    Keras's logs keep such a value as it is: a metric whose `result` returns the `value` of its
    variable would be read later, on one worker alone, and that needs them all.
    """

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype)  # of a tensor's own memory: never shared

    return __array__


def get_own_copy(original):
    """A metric's variable as an operand is this worker's own where it evaluates alone."""

    def _get(self):
        return self._primary if values_util.is_saving_non_distributed() else original(self)

    return _get


def name_the_handle(original):
    """A variable that is used where no step stands is an error in tfrun's words."""

    def handle(self):
        try:
            return original(self)
        except ValueError as error:
            if "replica" not in str(error):
                raise
            raise outside_run.outside_run(f"the variable {self.name!r} is used in a step") from None

    return handle


def note_own(original):
    """A variable that a line of the script makes belongs to the state of a training."""

    @functools.wraps(original)
    def __call__(cls, *args, **kwargs):
        made = original(cls, *args, **kwargs)
        script_state.note_variable(made)
        return made

    return __call__


def note_own_of_keras(original):
    """As `note_own`: Keras's variable has an `__init__`, TensorFlow's is made by its class."""

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        script_state.note_variable(self)

    return __init__


def look_at_assignments(original):
    """An assignment in a step tells, when it is traced, that a variable will differ on workers."""

    def assign(self, *args, **kwargs):
        script_state.note_assigned(self)
        if not tf.executing_eagerly():
            own_variables.look(self, (*args, *kwargs.values()))
        elif between_steps.in_step and script_state.is_made(self):
            result = original(self, *args, **kwargs)
            value = self.read_value()  # it may not be taken back, so nothing is added once more
            assigned_in_step.note(lambda: self.assign(value))
            return result
        return original(self, *args, **kwargs)

    return assign


def look_at_tables(original):
    """A lookup table that a step changes is one of this process's, and nobody gives it back."""

    def change(self, *args, **kwargs):
        if not tf.executing_eagerly():
            own_variables.look_at_table((*args, *kwargs.values()))
        return original(self, *args, **kwargs)

    return change


def look_at_gradients(original):
    """The first gradients that a script takes for itself may be a training of this worker's own."""

    def gradient(self, target, sources, *args, **kwargs):
        outside_run.look_at_gradients(sources)
        return original(self, target, sources, *args, **kwargs)

    return gradient


def differentiate_shards(original):
    """`tf.GradientTape.gradient` takes sharded Keras variables: a gradient for each shard."""

    def gradient(self, target, sources, *args, **kwargs):
        flat = tf.nest.flatten(sources) if isinstance(sources, list | tuple) else []
        if not any(variables.is_keras(one) and variables.is_sharded(one) for one in flat):
            return original(self, target, sources, *args, **kwargs)
        split = [variables.parts(one) if variables.is_keras(one) else [one] for one in flat]
        found = iter(original(self, target, [p for ps in split for p in ps], *args, **kwargs))
        made = [
            joined([next(found) for _ in pieces]) if len(pieces) > 1 else next(found)
            for pieces in split
        ]
        return type(sources)(made) if isinstance(sources, tuple) else made

    return gradient
