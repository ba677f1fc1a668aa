"""Builds a model that has a `train_step` of its own before its first step.

Keras builds a model under a strategy by calling it on a symbolic batch. A step of the script's own
need not call the model as a whole, or not with the batch: a GAN has no `call`. What Keras without a
strategy does, to let the first step make the variables, comes too late here: after a death the
state is put back before it.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras import tree
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

_tracing: list[Any] = []  # strategies; replicas may run in threads of their own
_SOME = 2  # rows

STEPS = ("train_step", "test_step")
LOGGING = (*STEPS, "compute_metrics")  # who has one may log values that are no metrics


def has_own(model: Any, names: Iterable[str]) -> bool:
    """Whether a model's class has one of these methods of its own, instead of Keras's."""
    cls = type(model)
    return any(getattr(cls, name) is not getattr(TensorFlowTrainer, name) for name in names)


def build(model: Any, by_calling: Callable[[], None], data_batch: Any) -> None:
    """Builds what a model with a step of its own consists of; never fails.

    What is wrong with the model shows in its first step, as in Keras without a strategy.

    Args:
      model: one of a strategy.
      by_calling: Keras's way.
      data_batch: this worker's first batch, of which shapes and dtypes matter.
    """
    with contextlib.suppress(Exception), warnings.catch_warnings():
        if type(model).call is not keras.Model.call:
            warnings.simplefilter("ignore")
            by_calling()
    if all(layer.built for layer in model._flatten_layers(include_self=False)):
        return
    for rows in (None, _SOME):  # where the step reads a number of rows, any one will do
        with contextlib.suppress(Exception), _variables_at_once(model.distribute_strategy):
            _trace(model, tree.map_structure(functools.partial(_with_rows, rows), data_batch))
            return


def _trace(model: Any, batch: Any) -> None:
    """Traces the model's step, which is never run."""
    strategy, step = model.distribute_strategy, model.train_step
    once = tf.function(lambda data: strategy.run(step, args=(data,)), autograph=False)
    once.get_concrete_function(batch)


def _with_rows(rows: int | None, leaf: Any) -> Any:
    is_symbol = tf.is_tensor(leaf) or isinstance(leaf, keras.KerasTensor)
    return tf.TensorSpec([rows, *leaf.shape[1:]], leaf.dtype) if is_symbol else leaf


@contextlib.contextmanager
def _variables_at_once(strategy: Any) -> Iterator[None]:
    """Has variables that a step makes begin with a value, as those made before it do.

    TensorFlow would leave that to the first run of the function that is traced.
    """
    _tracing.append(strategy)
    try:
        yield
    finally:
        _tracing.remove(strategy)


def traces_for() -> Any | None:
    """The strategy under which a step is traced for the variables that it makes; None else."""
    return _tracing[-1] if _tracing else None
