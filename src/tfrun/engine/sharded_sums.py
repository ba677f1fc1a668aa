"""Sums gradients for those who update with them, see optimizer_shards.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfrun.engine import host_collective
from tfrun.engine.host_collective_ops import Empty, Sum
from tfrun.engine.optimizer_shards import Shards


def sum_for_owners(
    shards: Shards,
    values: Sequence[Any],
    owners: Sequence[int | None],
    empty: Empty | None,
    *,
    checks: bool,
    before: Callable[[], None],
) -> list[Any]:
    """Sums each value over the workers, some for one worker alone.

    Args:
      shards: of the optimizer.
      values: tensors or `tf.IndexedSlices`.
      owners: who needs the sum of each, by rank; None: all do.
      empty: those of them that count as zeros on a worker without samples, if they are dense.
      checks: whether the optimizer asks all gradients whether they are finite.
      before: as of `host_collective.sum_all`.

    Returns:
      The sums. In place of one that another worker needs there is a scalar, which is NaN where any
      worker's sum is not finite and that is asked.
    """
    before()
    apart = [i for i, owner in enumerate(owners) if owner is not None]
    results: list[Any] = [None] * len(values)
    if apart:
        part = Sum(tensors=values, empty=empty).part(apart, "")
        sums = shards.calls.sum_owned(part, [owners[i] for i in apart])
        for i, total in zip(apart, sums, strict=True):
            results[i] = total
    rest = [i for i, owner in enumerate(owners) if owner is None]
    if rest:
        which = [place for place, i in enumerate(rest) if empty is not None and i in empty.which]
        its = replace(empty, which=which) if empty is not None and which else None
        given = [values[i] for i in rest]
        sums = host_collective.sum_all(shards.calls, given, None, its)
        for i, total in zip(rest, sums, strict=True):
            results[i] = total
    instead = _any_not_finite(shards, [results[i] for i in apart]) if checks else None
    for i in apart:
        if results[i] is None:
            nothing = tf.zeros([], values[i].dtype)
            if instead is not None:
                nothing = tf.where(instead, tf.cast(float("nan"), values[i].dtype), nothing)
            results[i] = nothing
    return results


def in_place_of(gradient: Any) -> Any:
    """A scalar for a gradient that all have, and another worker updates with: NaN, or zero."""
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    is_fine = tf.reduce_all(tf.math.is_finite(values))
    return tf.where(is_fine, tf.zeros([], values.dtype), tf.cast(float("nan"), values.dtype))


def _any_not_finite(shards: Shards, sums: Sequence[Any]) -> tf.Tensor:
    """Whether any number of any worker's sums is not finite."""
    mine = [tf.reduce_all(tf.math.is_finite(total)) for total in sums if total is not None]
    bad = tf.cast(tf.logical_not(tf.reduce_all(tf.stack([tf.constant(True), *mine]))), tf.int32)
    (found,) = shards.calls.all_reduce(Sum(tensors=[bad]))
    return found > 0


def global_norm(shards: Shards, grads: Sequence[Any]) -> Any:
    """The norm of all gradients, of which each worker has those that it updates with.

    Keras's `global_norm`, with the same bits: the square of each gradient's norm comes from its
    owner, and they are added up in the same order.

    Args:
      shards: of the optimizer that updates.
      grads: of its `updated` weights.
    """
    from keras.src import ops

    pairs = list(zip(grads, shards.updated, strict=True))
    own: list[Any] = [
        ops.sum(ops.square(grad)) if _counts_here(shards, weight) else None
        for grad, weight in pairs
    ]
    nothing = tf.zeros([], grads[0].dtype)
    squares = tf.stack([nothing if one is None else one for one in own])
    (squares,) = shards.calls.all_reduce(Sum(tensors=[squares]))
    return ops.sqrt(ops.sum(squares))


def _counts_here(shards: Shards, weight: Any) -> bool:
    """Whether this worker gives the norm of a gradient: what all have, the first one does."""
    owner = shards.owner(weight)
    return shards.rank == (0 if owner is None else owner)
