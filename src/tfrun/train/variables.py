"""This worker's copies of a model's variables: read, held, and given other values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.job.errors import TfrunError


def optimizers_of(model: Any) -> list[Any]:
    """The model's optimizer, and others that it holds as attributes (as a GAN does)."""
    found = [getattr(model, "optimizer", None), *vars(model).values()]
    kinds = (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
    unique: list[Any] = []
    for optimizer in found:
        if isinstance(optimizer, kinds) and all(optimizer is not other for other in unique):
            unique.append(optimizer)
    return unique


def state_variables(model: Any) -> dict[str, Any]:
    """All Keras variables that training changes, but for metrics, by a name for each.

    Names hold a number: paths of Keras variables need not differ from each other.
    """
    found = [("model", v) for v in model.variables]
    found += [("optimizer", v) for o in optimizers_of(model) for v in o.variables]
    return {f"{kind}/{i}/{v.path}": v for i, (kind, v) in enumerate(found)}


def copies(variable: Any) -> tuple[Any, ...]:
    """The TensorFlow variables of this worker's replicas behind a Keras variable."""
    value = variable._value
    if isinstance(value, tf.distribute.DistributedValues):
        return value.distribute_strategy.experimental_local_results(value)
    return (value,)


def hold(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The present values of this worker's first copies, without copying them.

    TensorFlow replaces the buffer of a variable that somebody still holds, instead of writing
    into it: what is assigned later costs a copy then, and what is not costs nothing.
    """
    return [copies(variable)[0].read_value() for variable in variables]


def assign(variable: Any, value: NDArray) -> None:
    """Gives all of this worker's copies a value.

    Raises:
      TfrunError: TFRUN-507 where the shape is another one than that of the variable.
    """
    if tuple(variable.shape) != value.shape:
        raise TfrunError(
            "TFRUN-507",
            f"the variable {variable.path!r} has the shape {tuple(variable.shape)}, and had "
            f"{value.shape} when its state was kept",
            expected="the script to make the same model whenever it is run",
            fix="Look for something that differs from run to run; or start with --fresh",
        )
    for copy in copies(variable):
        copy.assign(value.astype(copy.dtype.as_numpy_dtype, copy=False))


def digest(found: Iterable[Any]) -> str:
    """SHA-256 over the bytes of this worker's copies."""
    total = hashlib.sha256()
    for variable in found:
        total.update(copies(variable)[0].numpy().tobytes())
    return total.hexdigest()


def metric_totals(metrics: Sequence[Any]) -> NDArray[np.float32]:
    """The metric variables' values on this worker, in one vector."""
    values = [np.ravel(copy.numpy()) for v in metrics for copy in copies(v)[:1]]
    return np.concatenate(values).astype(np.float32) if values else np.zeros(0, np.float32)


def set_metric_totals(metrics: Sequence[Any], totals: NDArray[np.float32], *, here: bool) -> None:
    """Makes the sum over all replicas what `totals` says.

    Args:
      metrics: the metric variables.
      totals: all their values in one vector.
      here: True on the one worker that takes them; the others hold zeros.
    """
    start = 0
    for variable in metrics:
        size = int(np.prod(variable.shape))
        value = totals[start : start + size].reshape(tuple(variable.shape))
        start += size
        for number, copy in enumerate(copies(variable)):
            mine = value if here and number == 0 else np.zeros_like(value)
            copy.assign(mine.astype(copy.dtype.as_numpy_dtype, copy=False))
