"""A model that Keras trains: when it is built, and its logs over all workers."""

from __future__ import annotations

import functools

import tensorflow as tf
from keras import tree

from tfrun.engine import step_clock

_BUILD_FIRST = "_tfrun_build_first"
_RESUMED_LOGS = "_tfrun_resumed_logs"


def is_repaired(strategy) -> bool:
    """Whether `strategy` is one of tfrun's synchronous strategies."""
    return hasattr(strategy, "step_logs")


def build_first(model, wanted: bool) -> None:
    """Has a model without a strategy make its metrics before its first step, as others do."""
    object.__setattr__(model, _BUILD_FIRST, wanted)  # past Keras's tracking


def builds_first(model) -> bool:
    """Whether `build_first` has asked for it."""
    return getattr(model, _BUILD_FIRST, False)


def mean_of_logs(local, strategy):
    """The mean over the workers of every number in `local`, in one collective.

    Args:
      local: a nested structure of numbers and tensors, of the same shapes on all workers.
      strategy: one of tfrun's strategies. All workers must call this.

    Returns:
      The same structure of tensors; `local` itself when there is one worker.
    """
    leaves = [
        tf.constant(leaf, tf.float64) if isinstance(leaf, float) else tf.convert_to_tensor(leaf)
        for leaf in tree.flatten(local)
    ]
    if not leaves or not strategy.extended._in_multi_worker_mode():
        return local
    dtype = tf.float64 if any(leaf.dtype == tf.float64 for leaf in leaves) else tf.float32
    packed = tf.concat([tf.reshape(tf.cast(leaf, dtype), [-1]) for leaf in leaves], 0)
    reduce = functools.partial(strategy.reduce, tf.distribute.ReduceOp.MEAN, packed, axis=None)
    clock = step_clock.of(strategy)
    if clock is None or not tf.inside_function() or step_clock.is_xla():
        means = reduce()
    else:  # a part of a step
        means = step_clock.timed(clock.times.waited_for_logs, [packed], reduce)
    parts = tf.split(means, [tf.size(leaf) for leaf in leaves])
    return tree.pack_sequence_as(
        local,
        [
            tf.cast(tf.reshape(part, tf.shape(leaf)), leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        ],
    )


def resume_with_logs(model, logs: dict[str, float] | None) -> None:
    """States the logs of an epoch whose steps were all done before the script ran again."""
    object.__setattr__(model, _RESUMED_LOGS, logs)  # past Keras's tracking


def resumed_logs(model) -> dict[str, float] | None:
    """Returns what `resume_with_logs` has stated."""
    return getattr(model, _RESUMED_LOGS, None)
