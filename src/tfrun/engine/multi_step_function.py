"""Train functions that make several steps in one call: as many as it says, or all that there are.

Keras's `steps_per_execution` is a constant of the graph. Here it is a variable: no execution has to
go over the end of an epoch, or over a step after which something is due, and another number needs
no new trace. Where it is Keras's, a call makes as many steps as there are batches, also over the
end of an epoch whose `steps_per_epoch` it does not divide, and Keras's callbacks are told a planned
number: such a function counts the steps that it makes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import trainer

from tfrun.engine import step_clock
from tfrun.engine.scopes import default_strategy

_ATTRIBUTE = "_tfrun_executions"
_MADE = "_tfrun_steps_made"
_TO_COUNT = "_tfrun_steps_to_count"
_KERAS = trainer.TensorFlowTrainer
_OWN = ("make_train_function", "_make_function")


class Executions:
    """The executions of one model's train function.

    Attributes:
      is_made: the model's train function is of this kind.
    """

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._steps = tf.Variable(tf.ones([], tf.int32), trainable=False)
            self._seconds = tf.Variable(tf.zeros([], tf.float64), trainable=False)
        self._known = 1
        self.is_made = False

    @property
    def steps(self) -> int:
        """Steps of the next execution."""
        return self._known

    @steps.setter
    def steps(self, steps: int) -> None:
        if steps != self._known:
            self._steps.assign(steps, read_value=False)
            self._known = steps

    def seconds(self) -> float:
        """Seconds that all executions so far have spent outside Python."""
        return float(self._seconds.read_value())

    def function(self, model: Any, step: Any) -> Any:
        """Returns a train function.

        Args:
          model: whose.
          step: its `train_step`.
        """
        one = one_step(model, step)

        @tf.function(reduce_retracing=True)
        @tf.autograph.experimental.do_not_convert
        def several(iterator):
            optional: Any = tf.experimental.Optional
            began, last = step_clock.now(), optional.empty(None)

            def body(done, _):
                logs = optional.from_value(one(iterator.get_next()))
                last._element_spec = logs.element_spec  # as Keras does: known once it is traced
                return done + 1, logs

            # One after the other, so that no step begins while another one is not over.
            steps = self._steps.read_value()
            _, logs = tf.while_loop(
                lambda done, _: done < steps, body, [tf.constant(0), last], parallel_iterations=1
            )
            logs._element_spec = last.element_spec
            with tf.control_dependencies([logs._variant_tensor]), tf.device("CPU:0"):
                self._seconds.assign_add(step_clock.now() - began, read_value=False)
            return logs.get_value()

        def function(iterator):
            if isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
                return several(iterator)
            return one(next(iter(iterator)))  # of `train_on_batch`

        self.is_made = True
        return function


def one_step(model: Any, step: Any, traced: Callable[[], None] | None = None) -> Any:
    """keras/src/backend/tensorflow/trainer.py, `_make_function`: its step on one batch.

    Args:
      model: whose.
      step: its `train_step` or `test_step`.
      traced: is called in the step's graph, when all else is in it.
    """

    @tf.autograph.experimental.do_not_convert
    def one_step_on_data(data):
        strategy = model.distribute_strategy
        outputs = strategy.run(step, args=(data,))
        outputs = trainer.reduce_per_replica(outputs, strategy, reduction="auto")
        if traced is not None:
            traced()
        return outputs

    one = tf.function(one_step_on_data, reduce_retracing=True, jit_compile=model.jit_compile)
    return model._autoconvert_optionals(one)


def can_count(model: Any) -> bool:
    """Whether the model's train function is Keras's, so that another one can stand in for it."""
    cls = type(model)
    theirs = all(getattr(cls, name) is getattr(_KERAS, name) for name in _OWN)
    return theirs and not model.run_eagerly


def of(model: Any) -> Executions | None:
    """The executions that a model's train function is to have."""
    return getattr(model, _ATTRIBUTE, None)


def give(model: Any) -> Executions:
    """Has the model's train function count its steps from now on; runs one step at a time."""
    found = of(model)
    if found is None:
        found = Executions()
        object.__setattr__(model, _ATTRIBUTE, found)  # past Keras's tracking of attributes
    if not found.is_made:
        model.train_function = None
    return found


def take_back(model: Any) -> None:
    """Has the model's train function be Keras's again, unless that makes no difference."""
    found = of(model)
    if found is None:
        return
    found.steps = 1
    if model.steps_per_execution != 1 or model.run_eagerly:
        object.__setattr__(model, _ATTRIBUTE, None)
        model.train_function = None


def steps_so_far(model: Any) -> int | None:
    """Steps that the model's train function has made, from any number on; None if it counts none.

    Asking waits until they are made.
    """
    counter = getattr(model, _MADE, None)
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
    model.__dict__[_TO_COUNT] = counter  # past Keras's tracking of attributes
    try:
        made = make()
    finally:
        del model.__dict__[_TO_COUNT]
    model.__dict__[_MADE] = counter
    return made


def counting(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the step on one batch, which counts itself where `counted` has it made."""
    counter = model.__dict__.get(_TO_COUNT)
    if counter is None:
        return step

    @functools.wraps(step)
    def one_step(data: Any) -> Any:
        outputs = step(data)
        with tf.device("CPU:0"):
            counter.assign_add(1, read_value=False)
        return outputs

    return one_step


def count_no_steps(model: Any) -> None:
    """The model's train function counts no steps."""
    model.__dict__.pop(_MADE, None)
