"""Reads single rows of whole and of sharded tables: only they cross the network."""

from __future__ import annotations

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


class ShardGradients(list):
    """The gradient of a sharded variable: one for each shard, in order."""


def joined(pieces: list[Any]) -> ShardGradients | None:
    return None if all(piece is None for piece in pieces) else ShardGradients(pieces)
