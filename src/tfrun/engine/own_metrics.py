"""What metrics of the script's own count in a step, as parts of what one worker would.

A metric's variable is the sum of what all replicas hold. What a metric adds to it is mostly a sum
over its samples, and then nothing is to be done. A mean, a quotient of sums (the F1 of a batch), or
a one for each batch would count once for each replica: it is weighed, or made of the whole batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfrun.engine import batch_statistics, replica, step_graph
from tfrun.engine.loss_reader import known
from tfrun.engine.loss_terms import Term
from tfrun.engine.losses import Losses
from tfrun.engine.script_lines import at_script_line, keras_asks
from tfrun.engine.whole_values import CODE, of_all
from tfrun.job import reports
from tfrun.process import channel

_ADDS = ("Add", "AddV2", "Sub")
_SAME = ("Identity", "Cast")
_COUNTED = (Term.SUM, Term.COUNT, Term.ROWS, Term.PART)


def to_count(run: replica.ReplicaRun, variable: Any, value: Any) -> Any:
    """What this replica's copy of a metric's variable is assigned, so that all add up to one's."""
    losses = run.losses
    if losses is None or losses.states_replicas or not tf.is_tensor(value):
        return value
    if keras_asks():
        return value
    losses.count_once()
    with losses.unseen():
        before, change, sign = _added(losses, variable, value)
        _mark_sizes(losses, value, change)
        if change is not None and not _reads(losses, variable, change):
            return _with_share(run, variable, before, change, sign, value)
        return _held_by_first(run, variable, value)


def _with_share(
    run: replica.ReplicaRun, variable: Any, before: Any, change: Any, sign: int, value: Any
) -> Any:
    """`before` and this replica's part of what is added to it."""
    losses: Any = run.losses
    kind = losses.kind(change)
    if kind in _COUNTED:
        return value
    is_mean = kind is Term.MEAN and not batch_statistics.is_centred(losses, change)
    is_whole = is_mean or kind is Term.FIXED
    (part,) = [change] if is_whole else of_all(losses, [change])
    if part is None or (part is change and not is_whole):
        # What has a size of its own is most likely a sum that nobody here can read.
        if change.shape.rank == 0:
            _tell(losses, variable)
        return value
    if not variable._value.dtype.is_floating:
        return value if kind is not Term.FIXED else before + sign * _on_first(run, change)
    share = losses.share(part.dtype)
    # A replica without a sample has no mean.
    mine = tf.where(share > 0, part * share, tf.zeros_like(part))
    return before + sign * tf.cast(mine, before.dtype)


def _held_by_first(run: replica.ReplicaRun, variable: Any, value: Any) -> Any:
    """One worker's value on the first replica, none on the others."""
    losses: Any = run.losses
    reads = _reads(losses, variable, value)
    for read in reads:
        losses.mark(read, Term.SUM)
    kind = losses.kind(value)
    if kind is Term.FIXED or kind is Term.SUM:
        return value
    losses.sums([(read, Term.SUM) for read in reads], counts_all=True)
    (whole,) = of_all(losses, [value]) if losses.can_sum() else (None,)
    if whole is None or whole is value:
        _tell(losses, variable)
        return value
    return _on_first(run, whole)


def _on_first(run: replica.ReplicaRun, value: Any) -> Any:
    return tf.where(tf.equal(run.number, 0), value, tf.zeros_like(value))


def is_counted(variable: Any) -> bool:
    """Whether it is of a metric: one worker's value is the sum of the replicas'."""
    value = variable._value
    on_read = value.synchronization == tf.VariableSynchronization.ON_READ
    return on_read and variable.aggregation == "sum"


def _mark_sizes(losses: Losses, value: Any, change: Any) -> None:
    """Where batches have one size (`drop_remainder`, `jit_compile`) this is a constant.

    Where a replica has one sample there is no telling them apart.
    """
    batch = losses.walk.batch
    if batch is None or batch < 2:
        return
    upstream = step_graph.upstream(losses, [value])
    sizes = [here for here, _ in upstream if losses.walk.states_size(here)]
    for tensor in sizes if change is None else [*sizes, change]:
        number = known(tensor)
        if number is not None and number.shape == () and number > 0 and number % batch == 0:
            losses.mark(tensor, Term.COUNT)


def _added(losses: Losses, variable: Any, value: Any) -> tuple[Any, Any, int]:
    """What a variable held, what is added to that, and 1 or -1; None where it is no addition."""
    op = losses.op(_plain(losses, value))
    if op is None or op.type not in _ADDS:
        return None, None, 1
    handles = step_graph.handles_of([variable])
    a, b = op.inputs
    if _is_read(losses, a, handles):
        return a, b, -1 if op.type == "Sub" else 1
    if _is_read(losses, b, handles) and op.type != "Sub":
        return b, a, 1
    return None, None, 1


def _plain(losses: Losses, tensor: Any) -> Any:
    op = losses.op(tensor)
    while op is not None and op.type in _SAME:
        tensor = op.inputs[0]
        op = losses.op(tensor)
    return tensor


def _is_read(losses: Losses, tensor: Any, handles: set[int]) -> bool:
    op = losses.op(_plain(losses, tensor))
    return op is not None and step_graph.reads(losses, op, handles)


def _reads(losses: Losses, variable: Any, value: Any) -> list[Any]:
    """Where metrics' variables are read on the way to `value`."""
    metrics = [v for metric in losses.model.metrics for v in metric.variables if is_counted(v)]
    handles = step_graph.handles_of([variable, *metrics])
    return [
        here
        for here, op in step_graph.upstream(losses, [value])
        if step_graph.reads(losses, op, handles)
    ]


def _tell(losses: Losses, variable: Any) -> None:
    if losses.is_first_here:
        text = (
            f"a metric keeps in the variable {variable.path!r} what it computes from each worker's "
            f"own part of the batch{at_script_line()}, and tfrun adds these values up. Unless each "
            "is a sum over samples, a single worker would get another value from the whole batch. "
            "Have the metric add up sums and counts, or compute it with `evaluate` and -n 1"
        )
        channel.emit(reports.DoubtRaised(code=CODE, text=text))
