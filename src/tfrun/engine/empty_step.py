"""Does what plain Keras does in the step that it begins after the last batch of an epoch.

Where nobody knows how many batches an epoch has, Keras calls the train function once more than
there are. That fails for want of data; but TensorFlow has done by then what depends on none: the
optimizer has counted a step and decayed the weights. On many workers all updates wait for the sums
of all gradients, so nothing of that happens. A script that names no strategy is to end with the
same weights on many workers as on one.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfrun.engine import adoption, variable_values
from tfrun.engine.commit import Commit


def make(model: Any, commit: Commit | None) -> None:
    """Counts a step and decays weights, once for each update that a step has.

    All workers must call this. Nothing happens to models of a strategy that the script has asked
    for, and where plain Keras's step does nothing either: several steps in an execution, XLA, an
    optimizer that scales the loss or accumulates gradients.

    Args:
      model: whose epoch ran out of data.
      commit: of its steps; None where they are nobody's but this worker's.
    """
    ours = model.distribute_strategy
    if commit is None or ours is not adoption.given() or not _is_plain(model):
        return
    for optimizer in commit.updated:
        if not optimizer.gradient_accumulation_steps:
            _without_gradients(optimizer)


def _is_plain(model: Any) -> bool:
    config = getattr(model, "_compile_config", None)
    # Not `model.jit_compile`: workers leave it out.
    compiled = config is not None and config.config.get("jit_compile") is True
    scaled = any(
        isinstance(one, keras.optimizers.LossScaleOptimizer)
        for one in variable_values.optimizers_of(model)
    )
    return model.steps_per_execution == 1 and not (compiled or scaled or model.run_eagerly)


def _without_gradients(optimizer: Any) -> None:
    """keras/src/optimizers/base_optimizer.py, `apply`, as far as it depends on no gradient."""
    decay = optimizer.weight_decay
    if decay is not None:
        rate = tf.convert_to_tensor(optimizer.learning_rate)
        for variable in optimizer._trainable_variables:
            if optimizer._use_weight_decay(variable):
                for copy in variable_values.copies(variable):
                    part = tf.cast(decay, copy.dtype) * tf.cast(rate, copy.dtype)
                    copy.assign(copy - copy * part)
    for copy in variable_values.copies(optimizer.iterations):
        copy.assign_add(1)
