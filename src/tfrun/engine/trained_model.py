"""A model that Keras trains: when it is built, and its logs over all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from tfrun.collective.summation_order import Adder
from tfrun.engine import replica
from tfrun.engine.agree import sum_over_workers
from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel

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


def mean_of_logs(local: Any, strategy: Any) -> Any:
    """The mean over the replicas of every number in `local`, in one collective; between two steps.

    Args:
      local: a nested structure of numbers and tensors, of the same shapes on all workers. Of what
        a worker's replicas have returned in turn, that of the first: the mean is over them all.
      strategy: one of tfrun's strategies. All workers must call this.

    Returns:
      The same structure of tensors; `local` itself when there is one worker, or when it is the mean
      already.
    """
    turns = replica.turns_of(strategy)
    if local is strategy.whole_logs or not tree.flatten(local):
        return local
    if turns is None:
        if not strategy.extended._in_multi_worker_mode():
            return local
        own = packed(tree.flatten(as_tensors(local)))
        means = strategy.reduce(tf.distribute.ReduceOp.MEAN, own, axis=None)
    else:
        # What each has alike, too: a mean over workers would be rounded by their number.
        each = [packed(tree.flatten(as_tensors(one))) for one in returned_with(turns, local)]
        means = strategy.extended._host_calls.mean_of_replicas(each)
    return split_like(as_tensors(local), means)


def returned_with(turns: Any, first: Any) -> list[Any]:
    """What each replica here has returned in the newest step, if the first has `first`.

    Else it is none of a step's, and what each of them has.
    """
    is_of_step = turns.returned and turns.returned[0] is first
    return turns.returned if is_of_step else [first] * len(turns.held)


def logs_of_known(logs: dict[str, Any], strategy: Any, turns: Any) -> dict[str, Any]:
    """As `mean_of_logs`, of a step that was made before the replicas were divided as they are now.

    Whoever has made a replica's part of it knows that, and who has come since knows none. Nobody
    knows that of a worker which has gone: the mean is over the others then, and a line says so.

    Returns:
      The logs as Keras tells them, one below the other, the same on all workers.
    """
    names = sorted(told(logs))
    rows = np.zeros((turns.total, 1 + len(names)))
    if turns.returned and _are_of(logs, turns.returned[0]):
        for number, one in zip(turns.returned_by, turns.returned, strict=True):
            values = told(as_tensors(one))
            row = packed([values[name] for name in names]).numpy()
            rows[number] = row.dtype.itemsize, *row
    rows = sum_over_workers(strategy, rows.ravel()).reshape(rows.shape)
    known = [number for number in range(turns.total) if rows[number, 0]]
    if not known:
        return told(logs)
    if len(known) < turns.total and world().rank == 0:
        channel.emit(reports.WorkerNotice(text=_lacking(len(known), turns.total)))
    adder = Adder(turns.total)
    dtype = np.dtype(f"float{8 * int(rows[known[0], 0])}")
    for number in known:
        adder.add(number, [rows[number, 1:].astype(dtype)])
    means = sum(part[0] for part in adder.take()) / dtype.type(len(known))
    return dict(zip(names, means, strict=True))


def _are_of(logs: dict[str, Any], returned: Any) -> bool:
    """Whether logs are what a replica has returned, or were kept of that, as numbers."""
    if returned is logs:
        return True
    if not isinstance(returned, dict):
        return False
    kept, values = told(logs), told(as_tensors(returned))
    return kept.keys() == values.keys() and all(
        np.array_equal(np.asarray(kept[name], np.float64), values[name].numpy(), equal_nan=True)
        for name in kept
    )


def _lacking(known: int, total: int) -> str:
    return (
        "a worker died after the epoch's last step, before it had told what its train_step "
        f"returned: in this epoch's logs that is the mean over {known} of {total} replicas. The "
        "weights and later epochs lack nothing"
    )


def told(logs: dict[str, Any]) -> dict[str, Any]:
    """Logs without what holds others: `pythonify_logs` of keras/src/utils/python_utils.py."""
    flat: dict[str, Any] = {}
    for name, value in sorted(logs.items()):
        flat |= told(value) if isinstance(value, dict) else {name: value}
    return flat


def as_tensors(local: Any) -> Any:
    """The same structure, of tensors."""

    def tensor(leaf: Any) -> tf.Tensor:
        is_float = isinstance(leaf, float)
        return tf.constant(leaf, tf.float64) if is_float else tf.convert_to_tensor(leaf)

    return tree.map_structure(tensor, local)


def packed(leaves: Sequence[tf.Tensor]) -> tf.Tensor:
    """All numbers in a row, shape [n], float64 where any of them is that, else float32."""
    dtype = tf.float64 if any(leaf.dtype == tf.float64 for leaf in leaves) else tf.float32
    return tf.concat([tf.reshape(tf.cast(leaf, dtype), [-1]) for leaf in leaves], 0)


def split_like(like: Any, row: tf.Tensor) -> Any:
    """A structure of tensors as `like`, whose numbers are those of a row."""
    leaves = tree.flatten(like)
    parts = tf.split(row, [tf.size(leaf) for leaf in leaves])
    return tree.pack_sequence_as(
        like,
        [
            tf.cast(tf.reshape(part, tf.shape(leaf)), leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        ],
    )


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
