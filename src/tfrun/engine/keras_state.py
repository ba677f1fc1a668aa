"""Keeps layer state (BatchNorm's moving statistics) the same on every replica after a step.

Keras assigns such a variable on each replica for itself and nobody ever averages it, so workers
drift apart (keras-team/keras#18366 asks for the aggregation that Keras 2 had). Here the local
assignment happens, the run remembers it, and the mean is assigned when the gradients are reduced:
the values ride in the same all-reduce. A run without an optimizer averages at its end.

Integers (seed generators, counters) are computed from equal values and stay equal by themselves.
"""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine import adoption, replica
from tfrun.engine.variable_values import copies


def remember(run: replica.ReplicaRun, variable) -> None:
    """Has a run average what its step has assigned to a variable, where replicas may differ."""
    if run.context.num_replicas_in_sync == 1 or not _drifts(variable):
        return
    _add(run.assigned, variable)
    if run.in_nested_function():
        # Traced once, called by many runs: none of the later ones comes by here again.
        _add(run.context.strategy.assigned_in_functions, variable)


def unless_empty(run: replica.ReplicaRun, variable, value):
    """What a replica assigns to layer state; in a loop without a sample what it has held.

    The mean of no sample is NaN. In Keras's own steps such a replica has no weight in the sum.
    """
    if not may_be_empty(run) or not _drifts(variable):
        return value
    held = tf.convert_to_tensor(variable._value)
    return tf.where(tf.shape(run.batch)[0] > 0, tf.cast(value, held.dtype), held)


def may_be_empty(run: replica.ReplicaRun) -> bool:
    """Whether it is a step of a loop of the script's own, of which a replica may have no sample."""
    if run.batch is None or run.samples is not None or run.in_nested_function():
        return False
    return run.context.num_replicas_in_sync > 1


def refuse_own(run: replica.ReplicaRun | None, variable) -> None:
    """Refuses a variable that is this worker's alone, and would drift from the others'.

    Raises:
      TfrunError: TFRUN-506.
    """
    if run is None or run.context.num_replicas_in_sync == 1:
        return
    if variable._value.dtype.is_floating or variable.aggregation == "sum":
        raise adoption.outside(f"the variable {variable.path!r}")


def assign_here(run: replica.ReplicaRun, variable, value) -> None:
    """Assigns this replica's copy; right when every replica assigns the same value."""
    target = variable._value
    value = tf.cast(value, target.dtype)
    run.context._update(target, lambda copy, new: copy.assign(new), args=(value,))


def assign_outside(variable, value, original):
    """Assigns it where no replica computes.

    All replicas of this worker are given the same then, of what they count.
    """
    result = assign_unaggregated(variable, value, original)
    if tf.executing_eagerly() and isinstance(variable._value, tf.distribute.DistributedValues):
        first, *others = copies(variable)
        if others and replica.turns_of(variable._value.distribute_strategy):
            for other in others:
                other.assign(first.read_value(), read_value=False)
    return result


def take_assigned(run: replica.ReplicaRun) -> tuple[list, list]:
    """The variables to average now and this replica's weighted values, whose sum is the mean."""
    variables, run.assigned = run.assigned, []
    return variables, [run.weighted(tf.convert_to_tensor(v._value)) for v in variables]


def take_all_assigned(run: replica.ReplicaRun) -> tuple[list, list]:
    """The same, with what functions assign that the run may have called without tracing them.

    Which ones it did is read off the graph: what they capture, it captures. An eager run cannot
    tell and takes all of them, which costs a little and changes nothing else.
    """
    captured = _captured(run)
    for variable in run.context.strategy.assigned_in_functions:
        if captured is None or any(id(copy.handle) in captured for copy in copies(variable)):
            _add(run.assigned, variable)
    return take_assigned(run)


def average_assigned(run: replica.ReplicaRun) -> None:
    """Averages what is still to be averaged at the end of a run, in one all-reduce."""
    variables, values = take_assigned(run)
    if not variables:
        return
    means = run.context.all_reduce(tf.distribute.ReduceOp.SUM, values)
    with run.updates():
        for variable, mean in zip(variables, means, strict=True):
            assign_here(run, variable, mean)


def _captured(run: replica.ReplicaRun) -> set[int] | None:
    """The ids of the outer tensors that the graphs of this run read; None when it is eager."""
    graph, found = tf.compat.v1.get_default_graph(), set()
    if not hasattr(graph, "external_captures"):
        return None
    while hasattr(graph, "external_captures"):
        found.update(map(id, graph.external_captures))
        if graph is run.graph:
            break
        graph = graph.outer_graph
    return found


def _add(variables: list, variable) -> None:
    # Keras variables compare element by element: `in` would not do.
    if all(variable is not other for other in variables):
        variables.append(variable)


def _drifts(variable) -> bool:
    """Whether replicas hold different values of `variable` once each has assigned its own."""
    return (
        not variable.trainable
        and variable.aggregation == "none"
        and variable._value.synchronization != tf.VariableSynchronization.ON_READ
        and variable._value.dtype.is_floating
    )


def assign_unaggregated(variable, value, original) -> None:
    """`assign` for CentralStorageStrategy, which has one copy of a variable for all replicas.

    Two repairs. "You must specify an aggregation method to update a AggregatingVariable": Keras
    gives none to layer state, and fit fails with BatchNorm or Dropout. And Keras's `assign_add`
    is `assign(self + value)` (keras-team/keras#18624): summed over the replicas it would count
    what a metric held before once for each of them.
    """
    context = tf.distribute.get_replica_context()
    if context is None or type(variable._value).__name__ != "AggregatingVariable":
        return original(variable, value)
    target = variable._value
    if variable.aggregation == "sum":
        # One replica keeps what was there, the others give only what they add.
        first = context.replica_id_in_sync_group == 0
        return original(variable, tf.where(first, value, value - target))
    if variable.aggregation != "none":
        return original(variable, value)

    def merge(strategy, values):
        if target.dtype.is_floating:
            new = strategy.extended.reduce_to(tf.distribute.ReduceOp.MEAN, values, target)
        else:
            new = strategy.experimental_local_results(values)[0]
        original(variable, new)

    context.merge_call(merge, args=(value,))
