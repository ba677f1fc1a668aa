"""Counts the steps that a train function makes where one call makes several.

With Keras's `steps_per_execution` a call makes as many as there are batches, also over the end of
an epoch whose `steps_per_epoch` it does not divide; Keras's callbacks are told a planned number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrun.engine.scopes import default_strategy

_ATTRIBUTE = "_tfrun_steps_made"
_MAKING = "_tfrun_steps_to_count"


def so_far(model: Any) -> int | None:
    """Steps that the model's train function has made, from any number on; None if it counts none.

    Asking waits until they are made.
    """
    counter = getattr(model, _ATTRIBUTE, None)
    return None if counter is None else int(counter.read_value())


def counted(model: Any, make: Callable[[], Any]) -> Any:
    """Returns Keras's train function, each step of which counts itself.

    Args:
      model: whose.
      make: makes it, keras/src/backend/tensorflow/trainer.py, `_make_function`. It calls
        `_autoconvert_optionals` on its step on one batch, outside of any replica.
    """
    with default_strategy(), tf.device("CPU:0"):
        counter = tf.Variable(tf.zeros([], tf.int64), trainable=False)
    model.__dict__[_MAKING] = counter  # past Keras's tracking of attributes
    try:
        made = make()
    finally:
        del model.__dict__[_MAKING]
    model.__dict__[_ATTRIBUTE] = counter
    return made


def counting(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the step on one batch, which counts itself where `counted` has it made."""
    counter = model.__dict__.get(_MAKING)
    if counter is None:
        return step

    @functools.wraps(step)
    def one_step(data: Any) -> Any:
        outputs = step(data)
        with tf.device("CPU:0"):
            counter.assign_add(1, read_value=False)
        return outputs

    return one_step


def forget(model: Any) -> None:
    """The model's train function counts no steps."""
    model.__dict__.pop(_ATTRIBUTE, None)
