"""Reads of single rows: only they cross the wire, of whole and of sharded tables."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfrun.ps import variables


def lookup(table: Any, ids: tf.Tensor) -> tf.Tensor:
    """Returns the rows `ids` of a table on the servers, gathered there.

    Args:
      table: a variable or a sharded one, of shape [n, ...].
      ids: integers of any shape, 0 to n - 1.
    """
    if not variables.is_sharded(table):
        return table.sparse_read(ids)
    flat = tf.reshape(ids, [-1])
    firsts = variables.first_rows(table)
    ends = [*firsts[1:], table.shape[0]]
    rows, places = [], []
    for part, first, end in zip(table.variables, firsts, ends, strict=True):
        here = tf.reshape(tf.where((flat >= first) & (flat < end)), [-1])
        rows.append(part.sparse_read(tf.gather(flat, here) - tf.cast(first, flat.dtype)))
        places.append(here)
    back = tf.argsort(tf.concat(places, 0))
    found = tf.gather(tf.concat(rows, 0), back)
    return tf.reshape(found, tf.concat([tf.shape(ids), tf.shape(found)[1:]], 0))


def repair_gradients() -> None:
    """Lets `tf.GradientTape.gradient` take sharded Keras variables; once.

    The gradient of one is a `ShardGradients`: a gradient for each shard.
    """
    original = tf.GradientTape.gradient
    if hasattr(original, "_tfrun_shards"):  # others wrap it as well
        return

    @functools.wraps(original)
    def gradient(self, target, sources, *args, **kwargs):
        flat = tf.nest.flatten(sources) if isinstance(sources, list | tuple) else []
        if not any(variables.is_keras(one) and variables.is_sharded(one) for one in flat):
            return original(self, target, sources, *args, **kwargs)
        split = [variables.parts(one) if variables.is_keras(one) else [one] for one in flat]
        found = iter(original(self, target, [p for ps in split for p in ps], *args, **kwargs))
        made = [
            _joined([next(found) for _ in pieces]) if len(pieces) > 1 else next(found)
            for pieces in split
        ]
        return type(sources)(made) if isinstance(sources, tuple) else made

    gradient._tfrun_shards = True  # type: ignore[attr-defined]
    cls: Any = tf.GradientTape
    cls.gradient = gradient


class ShardGradients(list):
    """The gradient of a sharded variable: one for each shard, in order."""


def _joined(pieces: list[Any]) -> ShardGradients | None:
    return None if all(piece is None for piece in pieces) else ShardGradients(pieces)
