"""Gradients are reduced first, then everything else happens.

Keras 3 clips, accumulates and checks for infinities the *local* gradients and reduces them last:
N workers then compute something else than one worker, and a condition that differs between
workers can surround a collective, which deadlocks. Under tfrun's strategies the outermost
`apply_gradients` or `apply` of an optimizer sums the gradients over the replicas (with the layer
state of the step, see keras_state.py), waits for all of them, and then runs Keras's own update,
which needs no communication any more because every replica computes the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf
from keras import optimizers
from keras.src import backend
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from tfrun.engine import (
    adoption,
    commit,
    compression,
    host_collective,
    keras_state,
    outside_run,
    replica,
    step_clock,
)
from tfrun.engine.host_collective_ops import Empty, Gradients

# Called when an optimizer of this process updates something for the first time.
at_first_update: list[Callable[[], None]] = []


def reduce_gradients_first() -> None:
    """Makes optimizers reduce on entry; once."""
    if hasattr(BaseOptimizer.apply, "__wrapped__"):
        return
    for cls in (BaseOptimizer, optimizers.LossScaleOptimizer):
        cls.apply = _apply_reduced(cls.apply)
    BaseOptimizer.apply_gradients = _apply_gradients_reduced(BaseOptimizer.apply_gradients)
    TFOptimizer._all_reduce_sum_gradients = _reduce_once(TFOptimizer._all_reduce_sum_gradients)


def _apply_reduced(original):
    @functools.wraps(original)
    def apply(self, grads, trainable_variables=None):
        while at_first_update:
            at_first_update.pop()()
        run = replica.current()
        if run is None:
            alone = outside_run.strategy_to_run_in(self, trainable_variables)
            if alone is not None:
                with alone.scope():
                    return alone.run(functools.partial(self.apply, grads, trainable_variables))
            check_scope(self, _stated_strategy(), trainable_variables)
        if run is None or run.updating:
            return original(self, grads, trainable_variables)
        variables = trainable_variables
        variables = list(self._trainable_variables if variables is None else variables)
        return _updated(
            run, self, list(grads), variables, lambda g: original(self, g, trainable_variables)
        )

    return apply


def _apply_gradients_reduced(original):
    @functools.wraps(original)
    def apply_gradients(self, grads_and_vars):
        run = replica.current()
        if run is None or run.updating:
            return original(self, grads_and_vars)
        pairs = list(grads_and_vars)
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        return _updated(
            run, self, grads, variables, lambda g: original(self, zip(g, variables, strict=True))
        )

    return apply_gradients


def _reduce_once(original):
    @functools.wraps(original)
    def _all_reduce_sum_gradients(self, grads_and_vars):
        run = replica.current()
        if run is not None and run.updating:
            return list(grads_and_vars)
        return original(self, grads_and_vars)

    return _all_reduce_sum_gradients


def _updated(run: replica.ReplicaRun, optimizer, grads: list, variables: list, update):
    """Reduces the gradients and the assigned layer state together, then runs `update(grads)`."""
    check_scope(optimizer, run.context.strategy, variables)
    if run.losses is not None:
        grads = [run.losses.weighed(gradient) for gradient in grads]
    if run.deferred is not None:
        run.deferred.append(
            functools.partial(_update_now, run, optimizer, grads, variables, update)
        )
        return None
    return _update_now(run, optimizer, grads, variables, update)


def _update_now(run: replica.ReplicaRun, optimizer, grads: list, variables: list, update):
    state, values = keras_state.take_all_assigned(run)
    present = [i for i, g in enumerate(grads) if g is not None]
    # A float8 scale comes as a "gradient" that replaces the variable: a mean, not a sum.
    local = [
        run.weighted(grads[i])
        if getattr(variables[i], "overwrite_with_gradient", False)
        else grads[i]
        for i in present
    ]
    for gradient, i in zip(local, present, strict=True):
        if isinstance(gradient, tf.Tensor):
            gradient.set_shape(variables[i].shape)  # backpropagation does not always know it
    totals = commit.local_totals(run, optimizer)
    gradients = compression.gradients_of(optimizer, local, [variables[i] for i in present])
    empty = None
    if run.samples is not None:
        empty = Empty(which=range(len(local)), samples=run.samples)
    reduced = all_reduce_sum(run, [*local, *values, *totals], gradients, empty)
    after = len(present) + len(values)
    for position, i in enumerate(present):
        grads[i] = reduced[position]
    # One dead peer fails one pack's reduction. The step then must change nothing, so that the
    # survivors hold the state of the last whole step: all updates wait for all reductions.
    waiting = tf.control_dependencies(_tensors(reduced))
    with run.updates(), waiting, commit.counted(run, optimizer, reduced[after:]):
        result = update(grads)
        for variable, mean in zip(state, reduced[len(present) : after], strict=True):
            keras_state.assign_here(run, variable, mean)
    return result


def apply_deferred(run: replica.ReplicaRun) -> None:
    """Does the updates that have waited for the end of the step."""
    deferred, run.deferred = run.deferred or [], None
    for update in deferred:
        update()


def all_reduce_sum(
    run: replica.ReplicaRun,
    values: Sequence,
    gradients: Gradients | None = None,
    empty: Empty | None = None,
) -> list:
    """Sums each of `values` over the replicas, in as few reductions as there can be.

    Args:
      run: the current run.
      values: tensors or `tf.IndexedSlices`, of any floating dtypes.
      gradients: which of them may travel compressed, where the strategy can.
      empty: which of them count as zeros on a worker without samples, if they are dense.

    Returns:
      The sums, in the order of `values`.
    """
    if run.context.num_replicas_in_sync == 1:
        return list(values)
    since = None

    def waits() -> None:
        nonlocal since
        since = step_clock.waiting(run, _tensors(values))

    calls = host_collective.calls_of(run.context.strategy)
    if calls is not None:
        results = host_collective.sum_all(calls, values, gradients, empty, before=waits)
    else:
        waits()
        results = _sum_by_dtype(run, _zero_without_samples(values, empty))
    step_clock.waited(run, since, _tensors(results))
    return results


def _sum_by_dtype(run: replica.ReplicaRun, values: Sequence) -> list:
    """Sums by TensorFlow, which concatenates the tensors of a pack: that asks for one dtype."""
    results: list = [None] * len(values)
    for dtype in dict.fromkeys(value.dtype for value in values):
        members = [i for i, value in enumerate(values) if value.dtype == dtype]
        sums = run.context.all_reduce(tf.distribute.ReduceOp.SUM, [values[i] for i in members])
        for i, total in zip(members, sums, strict=True):
            results[i] = total
    return results


def check_scope(optimizer, strategy, variables: Sequence | None = None) -> None:
    """Refuses an optimizer, or variables for it, that do not know the strategy they work under.

    Args:
      optimizer: a Keras optimizer.
      strategy: None for none that a script has made.
      variables: what the optimizer is to update.

    Raises:
      TfrunError: TFRUN-506.
    """
    if strategy is None:
        return
    if getattr(optimizer, "_distribution_strategy", strategy) is not strategy:
        raise adoption.outside(f"the optimizer {optimizer.name!r}")
    for variable in variables or ():
        if isinstance(variable, backend.Variable | tf.Variable):
            owner = adoption.strategy_of(variable)
            if owner is not strategy:
                raise adoption.outside(f"the variable {getattr(variable, 'path', variable.name)!r}")


def _stated_strategy():
    return tf.distribute.get_strategy() if tf.distribute.has_strategy() else None


def _zero_without_samples(values: Sequence, empty: Empty | None) -> list:
    """The values, or zeros where a batch is empty: there they may be 0 * NaN."""
    result = list(values)
    dense = [i for i in empty.which if isinstance(values[i], tf.Tensor)] if empty else []
    if empty is None or not dense:
        return result
    kept = tf.cond(
        empty.samples > 0,
        lambda: [tf.identity(values[i]) for i in dense],
        lambda: [tf.zeros_like(values[i]) for i in dense],
    )
    for i, value in zip(dense, kept, strict=True):
        result[i] = value
    return result


def _tensors(values: Sequence) -> list:
    """Every tensor in `values`, the parts of `tf.IndexedSlices` too."""
    return tf.nest.flatten(list(values), expand_composites=True)
