"""Does what plain Keras does in the step that it begins after the last batch of an epoch.

Where nobody knows how many batches an epoch has, Keras calls the train function once more than
there are. That fails for want of data; but TensorFlow has done by then what depends on none: the
optimizer has counted a step and decayed the weights, and where batches have a fixed size
(`drop_remainder=True`) means have counted a batch. On many workers all updates wait for the sums of
all gradients, so nothing of that happens. A script that names no strategy is to end with the same
weights and logs on many workers as on one.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfrun.engine import adoption, replica, step_graph, variable_values
from tfrun.engine.commit import Commit

_COUNTED = "_tfrun_counted"


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


def note_counted(run: replica.ReplicaRun, variable: Any, value: Any) -> None:
    """Remembers which of the metrics' variables a step counts up without having seen its data.

    Args:
      run: the step's.
      variable: of a metric.
      value: what it is assigned.
    """
    known = run.losses
    if known is None or tf.executing_eagerly() or not tf.is_tensor(value):
        return
    counted = known.model.__dict__.setdefault(_COUNTED, {})
    key = known.trains, id(variable)
    _, others = counted.get(key, (variable, frozenset()))
    counted[key] = variable, others | {_adds(known, variable, value)}


def count_batch(model: Any, steps: int, *, trains: bool, fixed: bool) -> None:
    """Counts the batch that there is not where plain Keras does so; all workers must call this.

    Args:
      model: whose pass over its data has run out of it.
      steps: how many there were.
      trains: whether it was one of `fit`.
      fixed: the data says of what size each batch is.
    """
    if steps < 1 or model.distribute_strategy is not adoption.given() or not _is_plain(model):
        return
    before_data = {"a constant", "a size"} if fixed else {"a constant"}
    for (of_training, _), (variable, adds) in model.__dict__.get(_COUNTED, {}).items():
        if adds <= before_data and of_training is trains:
            for copy in variable_values.copies(variable):
                of_each = tf.cast(copy.read_value(), tf.float64) / steps
                copy.assign_add(tf.cast(of_each, copy.dtype), read_value=False)


def _adds(known: Any, variable: Any, value: Any) -> str:
    """What `value` is more than what the variable held: "a constant", "a size", or ""."""
    handles = step_graph.handles_of([variable])
    op = known.op(value)
    if op is None or op.type not in ("Add", "AddV2"):
        return ""
    reads, what, left = 0, "a constant", list(op.inputs)
    while left:
        here = left.pop()
        op = known.op(here)
        if id(here) in known.ones:
            continue
        if op is None:
            return ""
        if op.type in ("Shape", "Size"):
            what = "a size"
        elif step_graph.reads(known, op, handles):
            reads += 1
        elif op.inputs:
            left += op.inputs
        elif op.type != "Const":
            return ""
    return what if reads == 1 else ""


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
