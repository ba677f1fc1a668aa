"""Tells of samples that meet a mean over all samples on their way to a loss, as `x - mean(x, 0)`.

Each replica has the mean of its own part of the batch. Keras's BatchNormalization is documented to
do so; a layer or a loss of the script's own is told. What meets one number, the mean of all that
the samples have, is told where the loss is weighed (loss_terms.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrun.engine import step_graph
from tfrun.engine.loss_terms import MeanOver, Term
from tfrun.engine.losses import Losses
from tfrun.engine.script_lines import KERAS, TENSORFLOW, TFRUN

_MEETS = ("Sub", "Mul", "RealDiv", "DivNoNan", "SquaredDifference")
_PASSED = (
    *(TENSORFLOW, TFRUN),
    *(f"{KERAS}src{os.sep}{folder}{os.sep}" for folder in ("backend", "ops")),
)


def tell(losses: Losses, targets: Sequence[Any]) -> None:
    """Says where samples meet a mean of this replica's, on the way to what is trained on.

    Args:
      losses: of a step that is being traced.
      targets: of which gradients are taken.
    """
    if not losses.trains or losses.is_unseen or tf.executing_eagerly():
        return
    for here, op in step_graph.upstream(losses, filter(tf.is_tensor, targets)):
        if op.type in _MEETS and _meets_a_mean(losses, op.inputs) and _is_script_s(here):
            losses.tell(here)


def _meets_a_mean(losses: Losses, inputs: Sequence[Any]) -> bool:
    kinds = [losses.kind(each) for each in inputs if each.shape.rank != 0]
    means = [kind is Term.MEAN or isinstance(kind, MeanOver) for kind in kinds]
    return Term.ROWS in kinds and any(means) and losses.walk.batch != 1


def _is_script_s(tensor: Any) -> bool:
    """Whether no layer of Keras's own has asked for it."""
    for frame in reversed(list(tensor.op.traceback or ())):
        if not frame.filename.startswith(_PASSED):
            return not frame.filename.startswith(KERAS)
    return False
