"""Finds results of single samples in which the others of their batch have a part.

`x - mean(x, axis=0)` in a layer, BatchNormalization that is called with `training=True`, a
variable that a layer moves with each batch and reads: of a part of a batch they come to something
else than of the whole. In training each replica computes its part, and who trains is told
(batch_statistics.py). `evaluate` and `predict` have another way: each worker computes all of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrun.engine import replica
from tfrun.engine.loss_reader import (
    MATHEMATICS,
    REDUCTIONS,
    LossReader,
    Op,
    function_named,
    in_graph,
    known,
    samples_of,
)
from tfrun.engine.loss_terms import LossParts, MeanOver, Term, Walk
from tfrun.engine.script_lines import KERAS, TENSORFLOW, TFRUN, line_of
from tfrun.job import reports
from tfrun.process import channel

CODE = "TFRUN-517"
_LOOK = "_tfrun_look"
_ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_PASSED = (
    *(TENSORFLOW, TFRUN),
    *(f"{KERAS}src{os.sep}{name}{os.sep}" for name in ("backend", "ops", "utils")),
)
# What Keras makes of all results together has its own repairs.
_OF_ALL = tuple(f"{KERAS}src{os.sep}{name}{os.sep}" for name in ("losses", "metrics", "trainers"))
_NUMBERS_OF_ALL = (Term.MEAN, Term.SUM)


class ComputedAcross(Exception):
    """The results of a step have to be computed of whole batches."""


@dataclass(kw_only=True)
class Look:
    """A look at the steps that are traced while a call lasts.

    Attributes:
      call: which, for people.
      begins_again: it can be made once more. Not after a step has run.
      for_losses: what samples have, divided by a number of all, may be meant for a mean's sum.
      has_seen: it has looked at a step.
      where: path and line at which the samples of one of the steps meet; "" where they do not.
    """

    call: str
    begins_again: bool
    for_losses: bool = True
    has_seen: bool = False
    where: str = ""


@contextlib.contextmanager
def looking(strategy: Any, look: Look) -> Iterator[None]:
    """Looks at each step that is traced in the block.

    Args:
      strategy: by which it runs.
      look: where the call cannot begin again the step runs as it is, and who trains is told.

    Raises:
      ComputedAcross: on all workers, and before the step has run.
    """
    before = getattr(strategy, _LOOK, None)
    setattr(strategy, _LOOK, look)
    try:
        yield
    finally:
        setattr(strategy, _LOOK, before)


def see(run: replica.ReplicaRun, data: Any) -> None:
    """Looks at one replica's step, which has just been traced.

    Args:
      run: the step's.
      data: what the step was called with.

    Raises:
      ComputedAcross: see `looking`.
    """
    look: Look | None = getattr(run.context.strategy, _LOOK, None)
    if look is None or run.context.num_replicas_in_sync == 1 or tf.executing_eagerly():
        return
    graph, walk = tf.compat.v1.get_default_graph(), Walk(LossReader(), *samples_of(data), {})
    found = first_across(walk, graph, counting(graph), for_losses=look.for_losses)
    look.has_seen = True
    if found is not None:
        look.where = line_of(found)
        if look.begins_again:
            raise ComputedAcross
        if run.tells:
            _tell(look)
    look.begins_again = False


def _tell(look: Look) -> None:
    text = (
        f"{look.call}: what {look.where} computes for a sample depends on the other samples of its "
        "batch. Each worker computes it from its own part of the batch, but a single worker would "
        "compute it from the whole. model.evaluate and model.predict do use the whole batch, if "
        "they get arrays or a tf.data pipeline that does not shuffle"
    )
    channel.emit(reports.DoubtRaised(code=CODE, text=text))


def counting(graph: Any) -> set[int]:
    """By which a step reads what adds up over batches and workers, as metrics do, as `id`s."""
    found = set()
    while graph is not None:
        for variable in getattr(graph, "variables", ()):
            if variable.synchronization == tf.VariableSynchronization.ON_READ:
                found.add(id(variable.handle))
        graph = getattr(graph, "outer_graph", None)
    return found


def first_across(
    walk: Walk, graph: Any, counted: Collection[int], *, for_losses: bool
) -> Any | None:
    """The first tensor in a graph at which samples meet; None without any.

    Args:
      walk: of the step.
      graph: the step's, or one that it calls.
      counted: see `counting`.
      for_losses: see `Look`.
    """
    for made in graph.get_operations():
        op = in_graph(made)
        if _is_across(walk, op, counted, for_losses) and not _is_of_all(made):
            return made.outputs[0] if made.outputs else op.inputs[-1]
        for inner in _functions_of(made):
            captured = [(here, outer) for outer, here in getattr(inner, "captures", ())]
            there = walk.inside(inner.inputs, captured)
            found = first_across(there, inner, counted, for_losses=for_losses)
            if found is not None:
                return found
    return None


def _is_across(walk: Walk, op: Op, counted: Collection[int], for_losses: bool) -> bool:
    if op.type in _ASSIGNS:
        own = id(walk.source(op.inputs[0])) not in counted
        return own and (walk.kind(op.inputs[1]) is not Term.FIXED or _counts(walk, op.inputs[1]))
    if op.type.startswith("FusedBatchNorm") and "Grad" not in op.type:
        return op.attr("is_training")
    if not op.outputs or not op.outputs[0].dtype.is_floating:
        return False
    if walk.mixes(op):
        return True
    kind = walk.kind(op.outputs[0])
    if isinstance(kind, LossParts):
        return not for_losses
    meets = op.type in MATHEMATICS and kind in (Term.ROWS, Term.PAIRS)
    return meets and any(is_number_of_all(walk, each) for each in op.inputs)


def _counts(walk: Walk, tensor: Any) -> bool:
    """Whether the size of a batch has a part in it, which Python has read: a constant."""
    left = [tensor]
    while left and (walk.batch or 1) > 1:
        here = left.pop()
        value, op = known(here), walk.op(here)
        if value is not None and value.ndim == 0 and value == walk.batch:
            return True
        if op is not None and op.type in MATHEMATICS:
            left += op.inputs
    return False


def is_number_of_all(walk: Walk, tensor: Any) -> bool:
    """Whether it has been made of all samples: their mean, or the largest of them.

    Args:
      walk: of the step.
      tensor: of which an operation makes something for each sample.
    """
    left, seen = [tensor], set()
    while left:
        here = left.pop()
        if id(here) in seen or not here.dtype.is_floating:
            continue
        seen.add(id(here))
        kind, op = walk.kind(here), walk.op(here)
        if kind in _NUMBERS_OF_ALL or isinstance(kind, MeanOver):
            return True
        if kind is not Term.UNKNOWN or op is None:
            continue
        if op.type in REDUCTIONS or (_is_product(op) and _has_no_rows(walk, here)):
            return True
        if op.type in MATHEMATICS:
            left += op.inputs
    return False


def _is_product(op: Op) -> bool:
    return op.type == "Einsum" or "MatMul" in op.type


def _has_no_rows(walk: Walk, tensor: Any) -> bool:
    """Whether no sample has a number of its own in it: `tensordot(x, y, 2)`."""
    if tensor.shape.rank is None or None in tensor.shape.as_list():
        return False
    return walk.batch is None or all(size % walk.batch for size in tensor.shape)


def _is_of_all(made: Any) -> bool:
    """Whether one of Keras's losses or metrics has asked for an operation."""
    for frame in reversed(list(made.traceback or ())):
        if not frame.filename.startswith(_PASSED):
            return frame.filename.startswith(_OF_ALL)
    return False


def _functions_of(made: Any) -> Iterator[Any]:
    """The graphs that an operation calls: functions, branches, bodies of loops."""
    for value in made.node_def.attr.values():
        names = [value.func.name] if value.HasField("func") else []
        for name in names or [each.name for each in value.list.func]:
            if (function := function_named(made.graph, name)) is not None:
                yield function
