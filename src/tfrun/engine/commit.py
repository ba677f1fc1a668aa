"""Tells whether a training step has happened on a worker: its last act is to count itself.

When a peer dies, TensorFlow fails this worker's step somewhere. All updates of an optimizer wait
for all reductions (see gradient_sums.py), so weights and slots hold a whole step; the count,
which waits for all updates, tells which one. With the gradients travel the metric variables, which
TensorFlow keeps apart until they are read: every worker then knows the sums over all of them as
of the last whole step, those of the worker that has died too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import tensorflow as tf

from tfrun.engine import counted_after, replica, variable_values
from tfrun.engine.scopes import default_strategy


@dataclass(kw_only=True)
class Commit:
    """What a worker knows of the last whole step of a training.

    Attributes:
      steps: int64 scalar variable of this worker; counts applied updates.
      begun: int64 scalar variable of this worker; counts updates before they change anything.
      totals: float32 variable of shape [rows, n], float64 where a metric is: all `metrics`, flat;
        a row for each replica, or one row with the sums over the replicas where rows would be too
        many numbers.
      metrics: the Keras variables that `totals` holds.
      per_run: updates in one run of the train step, known once it is traced.
      late: the step adds to `metrics` after its last update, so `totals` lacks the newest step.
      updated: the optimizers of those updates, in their order, once it is traced.
    """

    steps: tf.Variable
    begun: tf.Variable
    totals: tf.Variable
    metrics: Sequence[Any]
    per_run: int = 0
    late: bool = False
    updated: list[Any] = field(default_factory=list)


AFTER_UPDATE = "tfrun_after_update"  # names what only waits for it
_ATTRIBUTE = "_tfrun_commit"
MOST_NUMBERS = 4096  # that travel with the gradients of each step for the metrics' sake
T = TypeVar("T")


def unless_updated(commit: Commit, look: Callable[[], T]) -> T | None:
    """What `look` gives; None when an update was on its way, which another thread may have done.

    As long as the number of updates stays the same, no variable that an optimizer updates changes.
    """
    done = int(commit.steps.read_value())  # before `begun`, which is never behind
    seen = look() if int(commit.begun.read_value()) == done else None
    return seen if int(commit.begun.read_value()) == done else None


def of(optimizer: Any) -> Commit | None:
    """The commit that is attached to `optimizer`."""
    return getattr(optimizer, _ATTRIBUTE, None)


def made_for(optimizers: Sequence[Any], metrics: Sequence[Any]) -> tuple[Commit, bool]:
    """The commit of these optimizers, and whether it is new.

    What is traced with a commit needs it as long as it lives, so it is made once, and again only
    when there are other metrics.
    """
    shared = [v for v in metrics if isinstance(v._value, tf.distribute.DistributedValues)]
    there = of(optimizers[0]) if optimizers else None
    is_theirs = all(of(optimizer) is there for optimizer in optimizers)
    if there and is_theirs and list(map(id, there.metrics)) == list(map(id, shared)):
        return there, False
    size = sum(int(tf.size(variable_values.copies(v)[0])) for v in shared)
    replicas = shared[0]._value.distribute_strategy.num_replicas_in_sync if shared else 1
    # Floats are added in the same order again only from a row for each replica.
    rows = replicas if replicas * size <= MOST_NUMBERS else 1
    with default_strategy(), tf.device("CPU:0"):
        made = Commit(
            steps=tf.Variable(tf.zeros([], tf.int64), trainable=False),
            begun=tf.Variable(tf.zeros([], tf.int64), trainable=False),
            totals=tf.Variable(
                tf.zeros([rows, size], variable_values.dtype_of_totals(shared)), trainable=False
            ),
            metrics=shared,
        )
    for optimizer in optimizers:
        # Past Keras's tracking of attributes. Its updates count themselves once traced anew.
        object.__setattr__(optimizer, _ATTRIBUTE, made)
    return made, True


def of_model(model: Any) -> Commit:
    """The commit of a Keras model, with a train function that is traced with it."""
    made, is_new = made_for(variable_values.optimizers_of(model), model.metrics_variables)
    if is_new:
        model.make_train_function(force=True)
    return made


def local_totals(run: replica.ReplicaRun, optimizer: Any) -> list[tf.Tensor]:
    """This replica's metric variables, shape [rows, n]; empty when nobody wants to know."""
    commit = of(optimizer)
    if commit is None or not commit.metrics:
        return []
    totals, run.travels = counted_after.travelling(_local_totals(run, commit))
    run.committed, run.counts_late = commit, False
    return [totals]


def _local_totals(run: replica.ReplicaRun, commit: Commit) -> tf.Tensor:
    dtype = commit.totals.dtype
    parts = [tf.cast(tf.reshape(v._value, [-1]), dtype) for v in commit.metrics]
    mine = tf.concat(parts, axis=0)[tf.newaxis]
    rows, size = (int(number or 0) for number in commit.totals.shape)
    if rows == 1:
        return mine
    # Zeros beside it, not times zero: what is not a number would be none anywhere.
    before = run.number
    if tf.is_tensor(before):
        return tf.tensor_scatter_nd_update(tf.zeros([rows, size], dtype), [[before]], mine)
    after = rows - before - 1
    zeros = [tf.zeros([others, size], dtype) for others in (before, after)]
    return tf.concat([zeros[0], mine, zeros[1]], axis=0)


@contextlib.contextmanager
def counted(run: replica.ReplicaRun, optimizer: Any, totals: Sequence[tf.Tensor]) -> Iterator[None]:
    """Counts the update once all that the block does to variables is done."""
    commit = of(optimizer)
    # The copies of a worker's first replica are those that a snapshot is made of.
    if commit is None or not run.is_first_here:
        yield
        return
    with (
        acting() as updates,
        tf.control_dependencies([commit.begun.assign_add(1, read_value=False)]),
    ):
        yield
    with tf.control_dependencies(updates):
        if totals:
            commit.totals.assign(totals[0], read_value=False)
        run.counts.append(commit.steps.assign_add(1, read_value=False))
    commit.per_run = len(run.counts)
    commit.updated[commit.per_run - 1 :] = [optimizer]
    commit.late = False


def note_assignment(run: replica.ReplicaRun, variable: Any) -> None:
    """Notes that a run assigns a Keras variable: it may be a metric's, and the update be done."""
    if run.committed is not None and any(variable is one for one in run.committed.metrics):
        run.counts_late = True


def after_updates(run: replica.ReplicaRun, result: Any) -> Any:
    """`result`, available once the run's updates are done.

    What is reduced of it then cannot fail in the middle of them.
    """
    here = tf.compat.v1.get_default_graph()
    if run.counts_late:  # where a worker has several replicas, each has a part of the metrics
        run.committed.late = not _travels_later(run) or run.committed.late
    counts = [op for op in run.counts if getattr(op, "graph", None) is here]
    if not counts:
        return result
    with tf.control_dependencies(counts):
        return tf.nest.map_structure(
            lambda x: tf.identity(x, AFTER_UPDATE) if tf.is_tensor(x) else x, result
        )


def _travels_later(run: replica.ReplicaRun) -> bool:
    """Has what the metrics hold by now be handed in, in place of what they held at the update."""
    if run.travels is None:
        return False
    with tf.device("CPU:0"):
        totals = _local_totals(run, run.committed)
    return counted_after.exchange(run.travels, totals)


@contextlib.contextmanager
def acting() -> Iterator[list[tf.Operation]]:
    """Notes the operations of the block that act, once it is over; none where nothing is traced."""
    found: list[tf.Operation] = []
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    before = len(graph.get_operations()) if graph is not None else 0
    yield found
    if graph is not None:
        made = graph.get_operations()[before:]
        found += [op for op in made if op.op_def is not None and op.op_def.is_stateful]
