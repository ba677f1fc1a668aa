"""Updates dense variables by one op of TensorFlow's: no copies, and slots under the same lock.

The ops compute what Keras's `update_step` does. `use_locking` makes two of them on the same
variables come one after the other. Adam's is not among them: ResourceApplyAdam takes 1 - beta_2 in
float32, which is wrong by 5e-5, and so are its steps.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfrun.ps import variables

_DTYPES = (tf.float32, tf.float64)


def update(
    optimizer: Any,
    variable: Any,
    part: int,
    gradient: tf.Tensor,
    rate: tf.Tensor,
) -> list[Any] | None:
    """Returns the ops of an update; None where there is none for this optimizer.

    Args:
      optimizer: the optimizer.
      variable: its Keras variable.
      part: which shard, from 0.
      gradient: of the shard's shape.
      rate: the learning rate.
    """
    target = variables.parts(variable)[part]
    plain = type(optimizer) is keras.optimizers.SGD and not (
        optimizer.weight_decay or optimizer.use_ema or getattr(variable, "constraint", None)
    )
    if not plain or not target.dtype == gradient.dtype in _DTYPES:
        return None

    def slot(kept: Any) -> Any:
        return variables.parts(kept[optimizer._get_variable_index(variable)])[part].handle

    return [_sgd(optimizer, target.handle, slot, gradient, tf.cast(rate, target.dtype))]


def _sgd(optimizer: Any, handle: Any, slot: Any, gradient: Any, rate: Any) -> Any:
    if not optimizer.momentum:
        return tf.raw_ops.ResourceApplyGradientDescent(
            var=handle, alpha=rate, delta=gradient, use_locking=True
        )
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=handle,
        accum=slot(optimizer.momentums),
        lr=rate,
        grad=gradient,
        momentum=tf.cast(optimizer.momentum, gradient.dtype),
        use_locking=True,
        use_nesterov=optimizer.nesterov,
    )
