"""Ends a step while it runs, when nobody needs what it computes: a worker has left the round.

TensorFlow cannot be stopped in the midst of a graph. An operation that fails keeps nothing from
running but what needs its result, and to cancel a function ends only operations that wait. So the
graph of a step that sums several times has gates, before what takes long: each hands on a tensor
while the gates are open, and fails when they are shut, and with it all that would be computed from
this tensor. What a step has computed that sums once is of use in the next round as well.

No gate comes after an update: what has changed weights has to be done to its end.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfrun.engine.own_copies import HANDS_IN, UPDATE

MOST = 64  # in a step: four operations each, some microseconds in all
_SLOW = re.compile(r"Conv[23]D|DepthwiseConv|MatMul|Einsum|While|PartitionedCall")
# What TensorFlow makes one operation of together with a slow one that takes its result.
_STAYS_WITH = re.compile(r"Pad|Transpose|Conj|Cast|Reshape|Quantize|Dequantize")
_NAME = "tfrun-step-goes-on"
SHUT = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)  # what a shut gate raises

# The handle of a variable that is there while the gates are open: they read it, which fails without
# it. An assertion would be one operation more, and wait for all others of the graph.
_goes_on: Any = None
_is_shut = False
_changing = threading.Lock()


def shut() -> None:
    """Makes the step fail that runs, and each that begins; from any thread."""
    _set(is_shut=True)


def open_again() -> None:
    """From now on steps are made to their end."""
    _set(is_shut=False)


@contextlib.contextmanager
def as_peer_error() -> Iterator[None]:
    """While it lasts a step that has been cut short fails as one whose peer has gone.

    Raises:
      UnavailableError: instead of what the gate has raised.
    """
    try:
        yield
    except SHUT as error:
        if _NAME not in str(error):
            raise
        raise tf.errors.UnavailableError(None, None, "a peer has left the round") from None


def put_gates() -> None:
    """Puts gates into the graph that has just been traced, of a step that several workers make."""
    graph: Any = tf.compat.v1.get_default_graph()
    operations = graph.get_operations()
    if _sums_at_its_end(operations):
        return
    chosen = _evenly(_before_what_is_slow(operations), MOST)
    if chosen:
        handle = _handle()
        for tensor in chosen:
            _put_gate(tensor, handle)


def _set(*, is_shut: bool) -> None:
    global _is_shut
    with _changing:
        _apply(is_shut=is_shut)
        _is_shut = is_shut


def _handle() -> Any:
    global _goes_on
    with _changing, tf.init_scope(), tf.device("CPU:0"):
        if _goes_on is None:
            # Past the strategy, as TensorFlow's own ordering tokens.
            _goes_on = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=_NAME)
            _apply(is_shut=_is_shut)
        return _goes_on


def _apply(*, is_shut: bool) -> None:
    if _goes_on is None:
        return
    with tf.device("CPU:0"):
        if is_shut:
            tf.raw_ops.DestroyResourceOp(resource=_goes_on, ignore_lookup_error=True)
        else:
            tf.raw_ops.AssignVariableOp(resource=_goes_on, value=tf.constant(True))


def _before_what_is_slow(operations: Sequence[tf.Operation]) -> list[tf.Tensor]:
    """What slow operations before the first update need, and have last, in the order of a step."""
    made: dict[int, int] = {}  # when, by the operation's id
    given: set[int] = set()  # what needs weights and the batch alone, and nothing slow
    found: dict[int, tf.Tensor] = {}
    for position, op in enumerate(operations):
        made[id(op)] = position
        if _is_named(op, UPDATE):
            break
        if not _SLOW.search(op.type):
            if all(id(tensor.op) in given for tensor in op.inputs):
                given.add(id(op))
        else:
            computed = [
                tensor
                for tensor in op.inputs
                if tensor.dtype.is_floating and id(tensor.op) not in given
            ]
            newest = max(computed, key=lambda tensor: made[id(tensor.op)], default=None)
            if newest is not None and not _STAYS_WITH.search(newest.op.type):
                found[id(newest)] = newest
    return list(found.values())


def _sums_at_its_end(operations: Sequence[tf.Operation]) -> bool:
    """Whether a step sums once, and updates then: it can wait there, see `Turns.goes_on`."""
    sums = 0
    for op in operations:
        if _is_named(op, UPDATE):
            return sums == 1
        sums += _is_named(op, HANDS_IN)
    return False


def _is_named(op: tf.Operation, name: str) -> bool:
    return name in op.name.rsplit("/", 1)[-1]


def _evenly(all_of: Sequence[tf.Tensor], most: int) -> list[tf.Tensor]:
    if len(all_of) <= most:
        return list(all_of)
    return [all_of[i * len(all_of) // most] for i in range(most)]


def _put_gate(tensor: tf.Tensor, handle: Any) -> None:
    takers = [
        (op, i) for op in tensor.consumers() for i, given in enumerate(op.inputs) if given is tensor
    ]
    # Twice, so that no edge but this one is added to what is there: TensorFlow does not combine
    # operations that others wait for, and the bits would depend on it.
    with tf.device(tensor.device):
        (there,) = tf.raw_ops.IdentityN(input=[tensor])
    with tf.device("CPU:0"):
        with tf.control_dependencies([there]):
            found = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.bool)
        # What is read is of no use to anybody; behind this TensorFlow does not see that.
        gate = tf.raw_ops.PlaceholderWithDefault(input=found, shape=[])
    with tf.control_dependencies([gate]), tf.device(tensor.device):
        (passed,) = tf.raw_ops.IdentityN(input=[there])
    for op, i in takers:
        op._update_input(i, passed)
