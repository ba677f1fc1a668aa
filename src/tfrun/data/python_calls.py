"""Python methods that a pipeline calls, which live as long as the pipeline does.

TensorFlow keeps what `tf.numpy_function` is given until the process ends: in a list of a graph that
is never let go of (tensorflow/python/ops/script_ops.py). What it reads would stay with it: the
samples of each `fit` that a script has ever made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tfrun.data import errors

D = TypeVar("D")


def held_weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls a bound method and does not keep its object.

    The dataset that calls it has to, see `keeping`; iterators keep their dataset. In a function
    that is being traced the dataset itself does not last, and the method is returned as it is.

    Args:
      method: a bound method.

    Raises (the function):
      TfrunError: TFRUN-619 where the object is gone.
    """
    if not tf.executing_eagerly():
        return method
    found, name = weakref.WeakMethod(method), method.__qualname__

    def call(*given: Any) -> Any:
        if (alive := found()) is None:
            raise errors.deleted(name)
        return alive(*given)

    return call


def keeping(dataset: D, *owners: Any) -> D:
    """Returns a dataset that keeps what owns the methods which it calls."""
    kept: Any = dataset
    kept._tfrun_keeps = (*getattr(dataset, "_tfrun_keeps", ()), *owners)
    return dataset
