"""Tells of samples that meet a mean over all samples on their way to a loss, as `x - mean(x, 0)`,
or each other.

Each replica has the mean of its own part of the batch. Keras's BatchNormalization is documented to
do so; a layer or a loss of the script's own is told. What meets one number, the mean of all that
the samples have, is told where the loss is weighed (loss_terms.py).

A step may also keep such means in variables: whole_values.py makes them one worker's. Where it
cannot, in a function within the step, a variable that is read again holds this replica's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrun.engine import same_draws, step_graph
from tfrun.engine.across_samples import CODE, is_number_of_all
from tfrun.engine.loss_reader import MATHEMATICS, REDUCTIONS, is_eager, operands
from tfrun.engine.loss_terms import MeanOver, Term
from tfrun.engine.losses import Losses
from tfrun.engine.script_lines import KERAS, TENSORFLOW, TFRUN, at_script_line
from tfrun.job import reports
from tfrun.process import channel

_MEETS = ("Sub", "Mul", "RealDiv", "DivNoNan", "SquaredDifference")
_MEETS_THE_LARGEST = (*_MEETS, "AddV2", "Add")
_PASSED = (
    *(TENSORFLOW, TFRUN),
    *(f"{KERAS}src{os.sep}{folder}{os.sep}" for folder in ("backend", "ops")),
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A variable that holds the mean of this replica's samples until the end of the step.

    Attributes:
      variable: Keras's.
      made: the graphs in which it may be read, and how many operations each had before.
      where: the script's line, in parentheses.
    """

    variable: Any
    made: Sequence[tuple[Any, int]]
    where: str


def tell(losses: Losses, targets: Sequence[Any]) -> None:
    """Says where samples meet a mean of this replica's, on the way to what is trained on.

    Args:
      losses: of a step that is being traced.
      targets: of which gradients are taken.
    """
    if not losses.trains or losses.is_unseen:
        return
    _tell_of_parts(losses)
    if tf.executing_eagerly():
        return
    is_told = losses.has_told  # where the loss was weighed, and this is how it came about
    for here, op in step_graph.upstream(losses, filter(tf.is_tensor, targets)):
        meets = op.type in _MEETS and _meets_a_mean(losses, op.inputs)
        meets |= op.type in _MEETS_THE_LARGEST and _meets_the_largest(losses, op.inputs)
        if (meets or (not is_told and losses.walk.mixes(op))) and _is_script_s(here):
            losses.tell(here)
        same_draws.tell(losses, here, op)


def is_centred(losses: Losses, tensor: Any) -> bool:
    """Whether a mean is one over what samples have after they met one, as a variance is.

    The mean of the replicas' variances is not the variance of the batch.
    """
    with losses.unseen():
        return _is_centred(losses, tensor)


def _is_centred(losses: Losses, tensor: Any) -> bool:
    seen: set[int] = set()
    left = [tensor]
    while left:
        here = left.pop()
        op = losses.op(here)
        known = op is not None and op.type in MATHEMATICS | REDUCTIONS
        if op is None or not known or id(here) in seen or losses.is_marked(here):
            continue
        seen.add(id(here))
        if losses.kind(here) is Term.FIXED:
            continue
        if op.type in _MEETS and _meets_a_mean(losses, op.inputs) and _is_script_s(here):
            return True
        left += operands(op)
    return False


def note_part(losses: Losses, variable: Any) -> None:
    """Notes that a variable now holds this replica's mean, and no other one's."""
    made = [(graph, len(graph.get_operations())) for graph in _graphs()]
    losses.parts.append(Part(variable=variable, made=made, where=at_script_line()))


def _tell_of_parts(losses: Losses) -> None:
    for part in losses.parts:
        handles = step_graph.handles_of([part.variable])
        later = (op for graph, count in part.made for op in graph.get_operations()[count:])
        if losses.is_first_here and any(step_graph.reads(losses, op, handles) for op in later):
            text = (
                f"the step reads the variable {part.variable.path!r} after it has assigned it a "
                f"mean of each worker's own part of the batch{part.where}. A single worker would "
                "compute it from the whole batch and get another value. Average it with "
                "`tf.distribute.get_replica_context().all_reduce`, or assign it outside of "
                "functions and conditions within the step"
            )
            channel.emit(reports.DoubtRaised(code=CODE, text=text))
    losses.parts.clear()


def _graphs() -> Iterator[Any]:
    """The graph that is being made now, and those that it stands in."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def _meets_a_mean(losses: Losses, inputs: Sequence[Any]) -> bool:
    kinds = [losses.kind(each) for each in inputs if each.shape.rank != 0]
    means = [kind is Term.MEAN or isinstance(kind, MeanOver) for kind in kinds]
    return Term.ROWS in kinds and any(means) and losses.walk.batch != 1


def _meets_the_largest(losses: Losses, inputs: Sequence[Any]) -> bool:
    kinds = [losses.kind(each) for each in inputs]
    pairs = zip(inputs, kinds, strict=True)
    found = (k is Term.UNKNOWN and is_number_of_all(losses.walk, each) for each, k in pairs)
    return Term.ROWS in kinds and any(found) and losses.walk.batch != 1


def _is_script_s(tensor: Any) -> bool:
    """Whether no layer of Keras's own has asked for it; nobody knows who does so eagerly."""
    if is_eager(tensor):
        return True
    for frame in reversed(list(tensor.op.traceback or ())):
        if not frame.filename.startswith(_PASSED):
            return not frame.filename.startswith(KERAS)
    return False
