"""What one worker would have, computed on each replica: of gradients, and of what a step keeps.

A step that is written for one machine may clip its gradients, update weights itself, count samples
or keep sums over them in variables. Computed from one replica's part, none of that is one worker's.
So what the value is made of is summed over the replicas (losses.py says with which weights), and
the operations behind it are done once more, with the sums. What is linear in the gradients needs
none of this: the optimizer sums it (gradient_sums.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrun.engine import batch_statistics, replica, sizes, step_graph
from tfrun.engine.loss_reader import (
    MATHEMATICS,
    REDUCTIONS,
    Op,
    again,
    can_be_copied,
    copied,
    operands,
)
from tfrun.engine.loss_terms import Kind, LossParts, MeanOver, Term
from tfrun.engine.losses import Losses
from tfrun.engine.own_variables import SUMS, is_of_own_data
from tfrun.engine.script_lines import at_script_line, keras_asks
from tfrun.job import reports
from tfrun.process import channel

CODE = batch_statistics.CODE
_NONE = Op(type="", inputs=(), attr={}.__getitem__, graph=None, outputs=())
_KNOWN = MATHEMATICS | REDUCTIONS
_SEGMENTS = ("UnsortedSegmentSum", "SegmentSumV2")
_PUT_TOGETHER = (
    *("ConcatV2", "StridedSlice", "Pack"),
    *("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub"),
)
_SUMMED = (Term.SUM, Term.MEAN, Term.PART, Term.COUNT)


def _op(losses: Losses, tensor: Any) -> Op:
    """Who computed a tensor; an operation without a name for what was there before."""
    return losses.op(tensor) or _NONE


def _kind(losses: Losses, tensor: Any) -> Kind:
    """What a tensor is; something for each sample only where it is made of such."""
    kind, op = losses.kind(tensor), _op(losses, tensor)
    if kind is Term.ROWS and op.type and op.type not in _KNOWN and not losses.is_marked(tensor):
        inputs = [losses.kind(each) for each in op.inputs]
        if inputs and Term.ROWS not in inputs and Term.COUNT not in inputs:
            return Term.UNKNOWN  # a size is that of the batch by chance
    return kind


def for_update(losses: Losses, gradients: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
    """The gradients for an optimizer, ready to be summed; and those that are one worker's already.

    Args:
      losses: of the step.
      gradients: of one replica; `None` for those that there are not.
    """
    given = [losses.weighed(gradient) for gradient in gradients]
    whole: dict[int, Any] = {}
    wanted = {}
    for i, gradient in enumerate(given):
        if gradient is None or gradient is not gradients[i]:
            continue
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        kind, drawn = losses.kind(values), losses.alone and losses.walk.is_drawn(values)
        if drawn:
            wanted[i] = values
        elif kind is Term.FIXED:
            if values is gradient and losses.alone and _is_of_variables(losses, values):
                whole[i] = gradient  # such as what the script has gathered over several steps
        elif kind is Term.MEAN:
            given[i] = gradient * losses.share(values.dtype)
        elif kind is not Term.SUM and not (kind is Term.ROWS and losses.is_marked(values)):
            wanted[i] = values
    found = of_all(losses, list(wanted.values()))
    for (i, values), value in zip(wanted.items(), found, strict=True):
        if value is None and (losses.walk.is_drawn(values) or _is_of_gradients(losses, values)):
            tell(losses, "an optimizer gets a gradient that the step computes")
        elif value is None or value is values:
            continue
        elif isinstance(given[i], tf.IndexedSlices):
            given[i] = tf.IndexedSlices(value, given[i].indices, given[i].dense_shape)
        else:
            whole[i] = value
    return given, whole


def _is_of_variables(losses: Losses, tensor: Any) -> bool:
    """Whether a fixed tensor follows from what all replicas have alike.

    What an eager step has from a function of its own is told from nothing that it computes itself.
    """
    if losses.keeps_own:
        return False
    if not tf.executing_eagerly():
        return True
    left = [tensor]
    while left:
        here = left.pop()
        op = _op(losses, here)
        if not op.type and here.dtype != tf.resource and here.shape.rank:
            return False
        left += op.inputs
    return True


def to_keep(run: replica.ReplicaRun, variable: Any, value: Any) -> tuple[Any, bool]:
    """What a variable of the replicas is assigned; whether that is the same on all of them.

    The step may read the variable again, as a BatchNorm of the script's own does: so it is at once
    what one worker has. Where that cannot be, a mean is put right at the end of the step.
    """
    losses = run.losses
    if losses is None or not tf.is_tensor(value) or not _is_kept(variable):
        return value, False
    kind = losses.kind(value)
    if kind is Term.FIXED and not losses.walk.is_drawn(value):
        return sizes.with_all_counted(losses, value)
    eager = tf.executing_eagerly()
    is_mean = kind is Term.MEAN and not variable.trainable
    if keras_asks() or not (eager or is_of_own_data(value, losses.walk.states_size)):
        return value, False  # such as BatchNorm's statistics; what the script has summed itself
    losses.count_once()
    centred = is_mean and batch_statistics.is_centred(losses, value)
    if is_mean and not centred and (losses.states_replicas or not losses.can_sum()):
        batch_statistics.note_part(losses, variable)  # nothing is wrong until the step reads it
        return value, False
    whole = None
    if not eager or _all_agree(run, value):
        (whole,) = of_all(losses, [value])
    # Eager tensors have only sizes: what has one sample a row, and what by chance as many.
    if not eager and (whole is None or (whole is value and kind is Term.ROWS)):
        whole = _with_all_rows(run, variable, value)
    if whole is None or whole is value:
        tell(losses, f"the step keeps in the variable {variable.path!r} what it computes")
        return value, False
    return whole, True


def _all_agree(run: replica.ReplicaRun, value: Any) -> bool:
    """Whether the workers of an eager step would sum the same for `value`; all must call this.

    What Python has done, and what a size is taken for, may differ with the number of samples.
    """
    losses, needed = run.losses, {}
    with losses.unseen():
        known = _is_made_of(losses, value, needed, {})
        parts = [(each.dtype.name, each.shape.as_list()) for each, _ in needed.values()]
        text = repr((known, parts)).encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=5).digest(), "big")
        mine = tf.constant(number, tf.float64)  # which holds sums of thousands of them exactly
        total = run.context.all_reduce(tf.distribute.ReduceOp.SUM, mine)
    return float(total) == float(number * run.context.num_replicas_in_sync)


def of_all(losses: Losses, tensors: Sequence[Any]) -> list[Any]:
    """One worker's `tensors`, from what all replicas have; None for those that nobody knows.

    A tensor with something for each sample of a replica is itself again, or is computed with what
    is one worker's in it.
    """
    if not tensors:
        return []
    with losses.unseen():
        needed: dict[int, tuple[Any, Any]] = {}
        known = [losses.can_sum() and _is_made_of(losses, each, needed, {}) for each in tensors]
        if not any(known):
            return [None] * len(tensors)
        values = losses.sums(list(needed.values()))
        return [
            _again(losses, each, values) if each_known else None
            for each, each_known in zip(tensors, known, strict=True)
        ]


def of_metrics(losses: Losses, value: Any, variables: Sequence[Any]) -> Any:
    """A number that follows from metrics, whose variables hold what this replica has counted.

    Args:
      losses: of the step.
      value: the number.
      variables: the metrics' variables.
    """
    handles = step_graph.handles_of(variables)
    reads: dict[int, tuple[Any, Any]] = {}
    if not losses.can_sum() or not _reads(losses, value, handles, reads, set()) or not reads:
        return value
    with losses.unseen():
        values = losses.sums(list(reads.values()), counts_all=True)
        return _again(losses, value, values, of_metrics=True)


def _reads(losses: Losses, tensor: Any, handles: set[int], found: dict, seen: set[int]) -> bool:
    """Adds where `tensor` reads variables; whether all that is done with them can be done again."""
    op = _op(losses, tensor)
    if not op.type or id(tensor) in seen:
        return True
    seen.add(id(tensor))
    if op.type == "ReadVariableOp":
        if step_graph.reads(losses, op, handles):
            found[id(tensor)] = (tensor, Term.SUM)
        return True
    if op.graph is None and op.type not in _KNOWN:
        return not op.inputs
    return all(_reads(losses, each, handles, found, seen) for each in op.inputs)


def _with_all_rows(run: replica.ReplicaRun, variable: Any, value: Any) -> Any:
    """`value` with the samples of all replicas, as in a queue; None if nobody can tell."""
    losses = run.losses
    rows: dict[int, Any] = {}
    counts: dict[int, tuple[Any, Any]] = {}

    def look(tensor: Any) -> bool:
        kind: Any = losses.kind(tensor)
        op = _op(losses, tensor)
        is_put = op.type and op.graph is not None and op.type in _PUT_TOGETHER
        if kind is not Term.FIXED and is_put:
            return all(map(look, op.inputs))
        if kind is not Term.ROWS:
            return _is_made_of(losses, tensor, counts, {})
        rows[id(tensor)] = tensor
        return losses.walk.rows_axis(tensor) == 0

    with losses.unseen():
        if not variable.shape or not losses.can_sum() or not look(value):
            return None
        size, maker = variable.shape[0], _op(losses, value)
        while len(maker.inputs) == 1:  # such as Identity
            maker = _op(losses, maker.inputs[0])
        is_new_first = maker.type == "ConcatV2" and id(maker.inputs[0]) in rows
        values = losses.sums(list(counts.values()))
        for key, tensor in rows.items():
            values[key] = run.context.all_gather(tensor, axis=0)
        whole = _again(losses, value, values, all_inputs=True)
        # A queue whose end is a number of Python's, the size of this replica's part.
        whole = whole[:size] if is_new_first else whole[-size:]
    return tf.ensure_shape(whole, variable.shape)


def _is_made_of(losses: Losses, tensor: Any, needed: dict[int, Any], seen: dict[int, bool]) -> bool:
    """Adds what has to be summed for `tensor`; whether that is enough to compute it."""
    if id(tensor) not in seen:
        seen[id(tensor)] = True
        seen[id(tensor)] = _looked_into(losses, tensor, needed, seen)
    return seen[id(tensor)]


def _looked_into(
    losses: Losses, tensor: Any, needed: dict[int, Any], seen: dict[int, bool]
) -> bool:
    kind = _kind(losses, tensor)
    if kind is Term.FIXED:
        if not losses.walk.is_drawn(tensor):
            return True
        if not (tensor.dtype.is_bool or tensor.dtype.is_floating or tensor.dtype.is_integer):
            return False
        needed[id(tensor)] = (tensor, Term.DRAWN)
        return True
    op = _op(losses, tensor)
    within = () if not op.type or losses.is_marked(tensor) else _operands(op)
    if op.type in _KNOWN and within and losses.walk.is_drawn(tensor):
        return all(_is_made_of(losses, each, needed, seen) for each in within)
    if kind is Term.COUNT and within and op.type in _KNOWN:  # such as a count and what was
        return all(_is_made_of(losses, each, needed, seen) for each in within)
    if kind is Term.COUNT and tensor.shape.rank != 0:
        return False
    if kind in (Term.UNKNOWN, Term.ROWS) and op.type and _adds_rows(losses, op):
        kind = Term.SUM
    if kind in _SUMMED or isinstance(kind, MeanOver):
        if tensor.dtype == tf.bool or (tensor.dtype.is_integer and kind is Term.MEAN):
            return False
        if batch_statistics.is_centred(losses, tensor):
            if op.type not in REDUCTIONS:
                return all(_is_made_of(losses, each, needed, seen) for each in within)
            # A sum before this one; eager steps have first to agree on all of them.
            (rows,) = [None] if op.graph is None else of_all(losses, within)
            if rows is None:
                return False
            losses.sum_instead(tensor, again(op, [rows]), kind)
        needed[id(tensor)] = (tensor, kind)
        return True
    if kind is Term.ROWS:
        return (
            not within
            or op.type not in _KNOWN
            or all(_is_made_of(losses, each, needed, seen) for each in within)
        )
    if isinstance(kind, LossParts) or not within:
        return False
    if op.type not in _KNOWN and not _can_be_copied(losses, tensor, op):
        return False
    no_rows = kind is Term.MIXED or all(_kind(losses, each) is not Term.ROWS for each in within)
    return no_rows and all(_is_made_of(losses, each, needed, seen) for each in within)


def _adds_rows(losses: Losses, op: Op) -> bool:
    """Whether an operation gives a sum over the samples that is none of `REDUCTIONS`."""
    rows = [losses.kind(each) is Term.ROWS for each in op.inputs]
    if op.type in ("MatMul", "BatchMatMulV2") and all(rows):
        names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
        a, b = (op.attr(name) for name in names)
        return losses.walk.rows_axis(op.inputs[0]) == 1 - a and losses.walk.rows_axis(
            op.inputs[1]
        ) == int(b)
    return op.type in _SEGMENTS and rows[0] and not rows[-1]


def _can_be_copied(losses: Losses, tensor: Any, op: Op) -> bool:
    if op.type.startswith(SUMS) or not can_be_copied(op):
        return False
    # What an eager step makes of its samples has their number as a size of its own, by chance
    # that of another dimension, and so is something else on a worker that has fewer.
    return op.graph is not None or _is_of_gradients(losses, tensor)


def _is_of_gradients(losses: Losses, tensor: Any) -> bool:
    """Whether a gradient that the step has taken has a part in `tensor`."""
    seen, left = set(), [tensor]
    while left:
        here = left.pop()
        if losses.is_marked(here):
            return True
        op = _op(losses, here)
        if id(here) not in seen and op.type and not op.type.startswith(SUMS):
            left += op.inputs
        seen.add(id(here))
    return False


def _operands(op: Op) -> Sequence[Any]:
    return operands(op) if op.type in _KNOWN else op.inputs


def _again(
    losses: Losses,
    tensor: Any,
    values: dict[int, Any],
    *,
    of_metrics: bool = False,
    all_inputs: bool = False,
) -> Any:
    """`tensor`, computed with `values` in the place of what they are given for, by `id`.

    Args:
      losses: of the step.
      tensor: what is wanted.
      values: grows.
      of_metrics: what no sample has a part in is computed again, too.
      all_inputs: an operation is given all its inputs anew, such as the ends of a slice.
    """
    if id(tensor) in values:
        return values[id(tensor)]
    kind = _kind(losses, tensor)
    op = _op(losses, tensor)
    is_end = not op.type or losses.is_marked(tensor) or (kind is Term.FIXED and not of_metrics)
    known_op = op.type and op.type in _KNOWN and not all_inputs
    if is_end or (kind is Term.ROWS and not known_op and not all_inputs):
        values[id(tensor)] = tensor
        return tensor
    within = operands(op) if known_op else op.inputs
    options = {"of_metrics": of_metrics, "all_inputs": all_inputs}
    new = [_again(losses, each, values, **options) for each in within]
    if all(a is b for a, b in zip(within, new, strict=True)):
        values[id(tensor)] = tensor
    elif known_op:
        values[id(tensor)] = again(op, new)
    else:
        values.update(zip(map(id, op.outputs), copied(op, new), strict=True))
    return values[id(tensor)]


def _is_kept(variable: Any) -> bool:
    value = variable._value
    return (
        variable.aggregation == "none"
        and value.synchronization != tf.VariableSynchronization.ON_READ
        and (value.dtype.is_floating or value.dtype.is_integer)
    )


def tell(losses: Losses, what: str) -> None:
    """Says where each replica has another value than one worker would."""
    if losses.is_first_here:
        text = (
            f"{what} from each worker's own part of the batch{at_script_line()}. A single worker "
            "would compute it from the whole batch and get another value. Sum or gather what it "
            "is made of with `tf.distribute.get_replica_context().all_reduce` or `.all_gather`"
        )
        channel.emit(reports.DoubtRaised(code=CODE, text=text))
