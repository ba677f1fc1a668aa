"""Warns of gradients that the workers change differently, as Python may in an eager step.

`if norm > 3:` or `gradient * float(scale)` leaves no trace in the tensors: what Python has read
there is this worker's part. So the workers compare how they have come from what the tape gave to
what the optimizer gets: the operations, and the numbers in them that no operation has made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tfrun.engine import replica, whole_values
from tfrun.engine.loss_terms import Term
from tfrun.engine.losses import Losses

_BYTES = 5  # whose sums over thousands of workers a float64 holds exactly
_NO_NUMBERS = (tf.resource, tf.variant, tf.string)


def compare(run: replica.ReplicaRun, gradients: Sequence[Any]) -> None:
    """Tells if this worker has changed its gradients otherwise than others; all must call this."""
    losses = run.losses
    with losses.unseen():
        counts = tf.constant(1.0, tf.float64)
        if run.samples is not None:  # what a worker without any has computed counts as nothing
            counts = tf.cast(run.samples > 0, tf.float64)
        mine = tf.constant(fingerprint(losses, gradients, run.samples), tf.float64)
        total, workers = run.context.all_reduce("sum", [counts * mine, counts])
        if float(counts) and float(total) != float(mine * workers):
            what = "gradients are changed in another way on this worker than on others, by numbers"
            whole_values.tell(losses, what)


def fingerprint(losses: Losses, gradients: Sequence[Any], samples: Any) -> int:
    """A number for the way from what the tape gave to these gradients.

    Args:
      losses: of the step.
      gradients: of one replica; `None` for those that there are not.
      samples: this replica's number of them, which differs where the batches do; or None.
    """
    left = tf.nest.flatten(list(gradients), expand_composites=True)[::-1]
    seen: dict[int, int] = {}
    found = hashlib.blake2b(digest_size=_BYTES)
    while left:
        tensor = left.pop()
        if id(tensor) not in seen:
            name, inputs = _maker(losses, tensor, samples)
            left += inputs[::-1]
        else:
            name = str(seen[id(tensor)])
        seen.setdefault(id(tensor), len(seen))
        found.update(f"{name}\n".encode())
    return int.from_bytes(found.digest(), "big")


def _maker(losses: Losses, tensor: Any, samples: Any) -> tuple[str, Sequence[Any]]:
    """What has made a tensor, and of which others."""
    if tensor is None or losses.is_gradient(tensor):
        return "gradient", ()
    if losses.walk.is_drawn(tensor) and losses.kind(tensor) is Term.FIXED:
        return "drawn", ()  # the first replica's counts for all
    op = losses.op(tensor)
    if op is not None:
        is_function = op_def_registry.get(op.type) is None  # its name tells nothing
        ends = is_function or op.type == "ReadVariableOp"
        return ("function" if is_function else op.type), (() if ends else op.inputs)
    if tensor.dtype in _NO_NUMBERS or losses.kind(tensor) is not Term.FIXED:
        return "data", ()
    value = tensor.numpy()
    if samples is not None and value.shape == () and value == float(samples):
        return "samples", ()
    return value.tobytes().hex(), ()
