"""A model that Keras trains: when it is built, and its logs over all workers."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras import StatelessScope, tree

from tfrun.engine import replica, step_clock, step_losses
from tfrun.engine.variable_values import read

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
      local: a nested structure of numbers and tensors, of the same shapes on all workers. Of what
        a worker's replicas have returned in turn, that of the first: the mean is over them all.
      strategy: one of tfrun's strategies. All workers must call this.

    Returns:
      The same structure of tensors; `local` itself when there is one worker.
    """
    leaves = [
        tf.constant(leaf, tf.float64) if isinstance(leaf, float) else tf.convert_to_tensor(leaf)
        for leaf in tree.flatten(local)
    ]
    turns, in_step = replica.turns_of(strategy), not tf.executing_eagerly()
    returned = turns.returned_with(local) if turns and not in_step else []
    if not leaves or not (turns or strategy.extended._in_multi_worker_mode()):
        return local
    dtype = tf.float64 if any(leaf.dtype == tf.float64 for leaf in leaves) else tf.float32
    packed = _packed(leaves, dtype)
    reduce = functools.partial(strategy.reduce, tf.distribute.ReduceOp.MEAN, packed, axis=None)
    if turns:
        each = [_packed(tree.flatten(one), dtype) for one in returned]
        if not each:  # what each has alike: a mean over workers would be rounded by their number
            each = [packed] if in_step else [packed] * len(turns.held)
        reduce = functools.partial(strategy.extended._host_calls.mean_of_replicas, each)
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


def _packed(leaves, dtype):
    return tf.concat([tf.reshape(tf.cast(leaf, dtype), [-1]) for leaf in leaves], 0)


def logs_of_all(local, strategy):
    """The logs of a step, as one worker has them: metrics from what all have counted together.

    A mean of the workers' values would be another number where they have counted different numbers
    of samples, or where a metric is no mean (AUC). What is no metric's is the mean over workers.

    Args:
      local: this worker's logs.
      strategy: one of tfrun's strategies. All workers must call this.
    """
    model = strategy.stepping and strategy.stepping()
    names = step_losses.metrics_among(model, local) if model and isinstance(local, dict) else set()
    counted = [v for v in model.metrics_variables if _adds_up(v)] if names else []
    if not counted:
        return mean_of_logs(local, strategy)
    # Those that this part of the graph has assigned: a worker's replicas in turn are one each.
    counts = [strategy.experimental_local_results(v._value) for v in counted]
    parts = strategy.num_replicas_in_sync // len(counts[0])
    here = [tf.cast(tf.add_n([read(one) for one in each]), tf.float64) for each in counts]
    logs, totals = mean_of_logs((local, [total * parts for total in here]), strategy)
    values = [tf.cast(total, v.dtype) for v, total in zip(counted, totals, strict=True)]
    with StatelessScope(state_mapping=list(zip(counted, values, strict=True))):
        found = model.get_metrics_result()
    return in_place_of(logs, names, found)


def _adds_up(variable) -> bool:
    """Whether a metric's variable is the sum of what the replicas have counted."""
    value = variable._value
    is_apart = isinstance(value, tf.distribute.DistributedValues)
    return is_apart and variable.aggregation == "sum" and variable.synchronization == "on_read"


def in_place_of(logs: dict[str, Any], names, found: dict[str, Any]) -> dict[str, Any]:
    """Returns the logs with what was `found` of the metrics of these names."""
    return {n: _found(n, value, found) if n in names else value for n, value in logs.items()}


def _found(name, logged, found):
    """What `found` has of a metric, or of each that a metric holds, as that of `compile` does."""
    if isinstance(logged, dict):
        return {inner: _found(inner, value, found) for inner, value in logged.items()}
    return found.get(name, logged)


def resume_with_logs(model, logs: dict[str, float] | None) -> None:
    """States the logs of an epoch whose steps were all done before the script ran again."""
    object.__setattr__(model, _RESUMED_LOGS, logs)  # past Keras's tracking


def resumed_logs(model) -> dict[str, float] | None:
    """Returns what `resume_with_logs` has stated."""
    return getattr(model, _RESUMED_LOGS, None)
