"""Makes optimizers sum the gradients of all replicas before anything else happens.

Keras 3 clips, accumulates and checks for infinities the *local* gradients and reduces them last:
N workers then compute something else than one worker, and a condition that differs between
workers can surround a collective, which deadlocks. Under tfrun's strategies the outermost
`apply_gradients` or `apply` of an optimizer sums the gradients over the replicas (with the layer
state of the step, see keras_state.py), waits for all of them, and then runs Keras's own update,
which needs no communication any more because every replica computes the same.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from keras.src import backend

from tfrun.collective.counts import Gradients
from tfrun.engine import (
    adoption,
    commit,
    compression,
    eager_changes,
    host_collective,
    keras_state,
    optimizer_shards,
    replica,
    sharded_sums,
    shareable_optimizers,
    step_clock,
    tensorflow_collectives,
    travelling_results,
    whole_values,
)
from tfrun.engine.host_collective_ops import Empty
from tfrun.engine.scopes import default_strategy

# Called when an optimizer of this process updates something for the first time.
at_first_update: list[Callable[[], None]] = []


def updated(run: replica.ReplicaRun, optimizer, grads: list, variables: list, update):
    """Reduces the gradients and the assigned layer state together, then runs `update(grads)`."""
    check_scope(optimizer, run.context.strategy, variables)
    if replica.turns_of(run.context.strategy) and not optimizer.built:
        with tf.init_scope(), default_strategy(), run.context.strategy.scope():
            optimizer.build([v for v in variables if isinstance(v, backend.Variable)])
    # A script may hand over variables in which it has gathered them.
    plain = (tf.Tensor, tf.IndexedSlices, type(None))
    grads = [g if isinstance(g, plain) else tf.convert_to_tensor(g) for g in grads]
    whole: dict[int, Any] = {}
    if run.losses is not None:
        if run.losses.alone and tf.executing_eagerly():
            eager_changes.compare(run, grads)
        grads, whole = whole_values.for_update(run.losses, grads)
    common = {i for i, gradient in enumerate(grads) if _has_common_rows(run, gradient)}
    distinct = {i for i, gradient in enumerate(grads) if _has_distinct_rows(run, gradient)}
    now = functools.partial(
        *(_update_now, run, optimizer, grads, variables, common, distinct, whole, update)
    )
    if run.deferred is not None:
        run.deferred.append(now)
        return None
    return now()


def _has_common_rows(run: replica.ReplicaRun, gradient) -> bool:
    """Whether a gradient of rows of a table has the same ones on all replicas, one by one.

    So it is with a table of positions, which is read once for all samples. One worker has the sum
    over the samples in each row. With the rows of all replicas one behind the other, Keras's
    optimizers, which do not add up what a row has twice, would square and clip parts of it.
    """
    return (
        isinstance(gradient, tf.IndexedSlices)
        and run.losses is not None
        and run.losses.is_fixed(gradient.indices)
    )


def _has_distinct_rows(run: replica.ReplicaRun, gradient) -> bool:
    """Whether a gradient of rows of a table has each row once, however often it was read.

    So it is behind `tf.nn.embedding_lookup_sparse`, by which Keras multiplies sparse inputs: it
    reads each row once, and one worker has one sum for it. Each replica has a part of that.
    """
    if not isinstance(gradient, tf.IndexedSlices) or run.losses is None:
        return False
    with run.losses.unseen():
        op = run.losses.op(gradient.indices)
        while op is not None and op.type in ("Cast", "Identity", "Reshape"):
            op = run.losses.op(op.inputs[0])
        return op is not None and op.type in ("Unique", "UniqueV2")


def _distinct_added_up(gathered: tf.IndexedSlices) -> tf.IndexedSlices:
    """Each row once, in the order in which they come first, as in one worker's gradient."""
    rows, place = tf.unique(gathered.indices)
    sums = tf.math.unsorted_segment_sum(gathered.values, place, tf.size(rows))
    return tf.IndexedSlices(sums, rows, gathered.dense_shape)


def _added_up(gathered: tf.IndexedSlices, replicas: int) -> tf.IndexedSlices:
    """The rows of all replicas, added up where all have the same ones, one by one.

    They differ where the replicas' batches do, in length: such rows stay as they are.
    """
    indices, values = gathered.indices, gathered.values
    count = tf.size(indices) // replicas

    def each(tensor: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([[replicas, count], tf.shape(tensor)[1:]], axis=0)
        return tf.reshape(tensor[: replicas * count], shape)

    same = tf.reduce_all(tf.equal(each(indices), each(indices)[:1]))
    same = same & tf.equal(replicas * count, tf.size(indices))
    sums: Any = tf.cond(
        same,
        lambda: (tf.reduce_sum(each(values), axis=0), indices[:count]),
        lambda: (values, indices),
    )
    values, indices = sums
    return tf.IndexedSlices(values, indices, gathered.dense_shape)


def _update_now(
    run: replica.ReplicaRun,
    optimizer,
    grads: list,
    variables: list,
    common: set[int],
    distinct: set[int],
    whole: dict[int, Any],
    update,
):
    state, values = keras_state.take_all_assigned(run)
    present = [i for i, g in enumerate(grads) if g is not None and i not in whole]
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
    # As many rows as there are on all: they travel as they are, else with their numbers.
    counted = {i for i in common if grads[i].values.shape.is_fully_defined()}
    local = [g.values if i in counted else g for g, i in zip(local, present, strict=True)]
    owned = [i not in counted and not isinstance(grads[i], tf.IndexedSlices) for i in present]
    totals = commit.local_totals(run, optimizer)
    shards = optimizer_shards.of(optimizer)
    gradients = compression.gradients_of(optimizer, local, [variables[i] for i in present])
    empty = None
    if run.samples is not None:
        empty = Empty(which=range(len(local)), samples=run.samples)
    elif keras_state.may_be_empty(run):
        # A regularization loss counts there, too: what is a number stays.
        empty = Empty(which=range(len(local)), samples=tf.shape(run.batch)[0], nans=True)
    after = len(present) + len(values)
    result = None

    def updates(reduced: Sequence) -> None:
        nonlocal result
        for position, i in enumerate(present):
            total, mine = reduced[position], grads[i]
            if i in counted:
                total = tf.IndexedSlices(total, mine.indices, mine.dense_shape)
            elif i in common:
                total = _added_up(total, run.context.num_replicas_in_sync)
            elif i in distinct:
                total = _distinct_added_up(total)
            grads[i] = total
        for i, total in whole.items():
            grads[i] = total
        if shards is not None:
            for i in (*present, *whole):
                if not shards.is_mine(variables[i]):
                    grads[i] = sharded_sums.in_place_of(grads[i])
        # One dead peer fails one pack's reduction. The step then must change nothing, so that the
        # survivors hold the state of the last whole step: all updates wait for all reductions.
        waiting = tf.control_dependencies(_tensors([*reduced, *whole.values()]))
        counted_by_metrics = reduced[after : after + len(totals)]
        counting = commit.counted(run, optimizer, _apart(run, counted_by_metrics))
        sharing = contextlib.nullcontext() if shards is None else shards.counted()
        with run.updates(), waiting, counting, sharing:
            result = update(grads)
            if shards is not None:
                shards.give(run)
            if turns is None:
                assigns(reduced[len(present) : after])

    def assigns(means: Sequence) -> None:
        with run.updates():
            for variable, mean in zip(state, _apart(run, means), strict=True):
                keras_state.assign_here(run, variable, mean)

    turns = replica.turns_of(run.context.strategy)
    everything = [*local, *values, *totals]
    if shards is not None:
        owners = [
            shards.owner(variables[i]) if dense else None
            for i, dense in zip(present, owned, strict=True)
        ]
        owners += [None] * (len(everything) - len(present))
        scaled = shareable_optimizers.inner(optimizer) is not optimizer
        updates(_sum_for_owners(run, shards, everything, owners, empty, checks=scaled))
        return result
    if turns is None:
        updates(_all_reduce_sum(run, everything, gradients, empty))
        return result
    # Once for all replicas of this worker, which have the layers' state each.
    is_loop = run.losses is None  # of the script's own
    results = travelling_results.place() if is_loop else []
    places = [*range(len(present), after), *range(len(everything), len(everything) + len(results))]
    sums = _sum_in_turn(run, [*everything, *results], gradients, empty, places, updates)
    assigns(sums[: len(values)])
    travelling_results.summed(sums[len(values) :])
    return None


def _apart(run: replica.ReplicaRun, sums: Sequence) -> Sequence:
    """Some of a step's sums in memory of their own, for variables that are given them as they are.

    The host collective's sums lie in one buffer, which would be kept for the sake of a few.
    """
    if host_collective.calls_of(run.context.strategy) is None:
        return sums
    with tf.device("CPU:0"):  # where they are
        return [tf.raw_ops.DeepCopy(x=total) for total in sums]


def apply_deferred(run: replica.ReplicaRun) -> None:
    """Does the updates that have waited for the end of the step."""
    deferred, run.deferred = run.deferred or [], None
    for update in deferred:
        update()


def _all_reduce_sum(
    run: replica.ReplicaRun, values: Sequence, gradients: Gradients | None, empty: Empty | None
) -> list:
    """Sums each of `values` over the replicas, in as few reductions as there can be."""
    if run.context.num_replicas_in_sync == 1 or not values:
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
        results = tensorflow_collectives.sum_all(run.context, values, empty)
    step_clock.waited(run, since, _tensors(results))
    return results


def _sum_for_owners(
    run: replica.ReplicaRun,
    shards: optimizer_shards.Shards,
    values: Sequence,
    owners: Sequence[int | None],
    empty: Empty | None,
    *,
    checks: bool,
) -> list:
    """The same for an optimizer that the workers share; see `sharded_sums.sum_for_owners`."""
    since = None

    def waits() -> None:
        nonlocal since
        since = step_clock.waiting(run, _tensors(values))

    results = sharded_sums.sum_for_owners(
        shards, values, owners, empty, checks=checks, before=waits
    )
    step_clock.waited(run, since, _tensors(results))
    return results


def _sum_in_turn(
    run: replica.ReplicaRun,
    values: Sequence,
    gradients: Gradients | None,
    empty: Empty | None,
    for_all: Sequence[int],
    then: Callable[[Sequence], None],
) -> list:
    """The same for a worker's replicas, which take turns; see `CallsInTurn.update`."""
    calls: Any = host_collective.calls_of(run.context.strategy)
    since = None

    def waits() -> None:
        nonlocal since
        since = step_clock.waiting(run, _tensors(values))

    means = host_collective.sum_in_turn(calls, values, gradients, empty, for_all, then, waits)
    step_clock.waited(run, since, [op for op in run.counts[-1:] if not tf.executing_eagerly()])
    return means


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


def _tensors(values: Sequence) -> list:
    """Every tensor in `values`, the parts of `tf.IndexedSlices` too."""
    return tf.nest.flatten(list(values), expand_composites=True)
