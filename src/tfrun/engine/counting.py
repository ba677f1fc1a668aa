"""Makes a training's steps count themselves (see engine/commit.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrun.engine import commit as commits
from tfrun.engine import variable_values
from tfrun.engine.scopes import default_strategy


def commit_for(optimizers: Sequence[Any], metrics: Sequence[Any]) -> tuple[commits.Commit, bool]:
    """The commit of these optimizers, and whether it is new.

    What is traced with a commit needs it as long as it lives, so it is made once, and again only
    when there are other metrics.
    """
    shared = [v for v in metrics if isinstance(v._value, tf.distribute.DistributedValues)]
    there = commits.of(optimizers[0]) if optimizers else None
    is_theirs = all(commits.of(optimizer) is there for optimizer in optimizers)
    if there and is_theirs and list(map(id, there.metrics)) == list(map(id, shared)):
        return there, False
    size = sum(int(tf.size(variable_values.copies(v)[0])) for v in shared)
    replicas = shared[0]._value.distribute_strategy.num_replicas_in_sync if shared else 1
    with default_strategy(), tf.device("CPU:0"):
        made = commits.Commit(
            steps=tf.Variable(tf.zeros([], tf.int64), trainable=False),
            begun=tf.Variable(tf.zeros([], tf.int64), trainable=False),
            totals=tf.Variable(
                tf.zeros([commits.rows_of_totals(replicas, size), size]), trainable=False
            ),
            metrics=shared,
        )
    for optimizer in optimizers:
        commits.attach(optimizer, made)
    return made, True
