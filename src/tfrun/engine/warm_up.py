"""Runs a function of a loop's step for nothing, before the step is made that others wait for.

What TensorFlow does in a first run takes as long as a step or two: it asks for memory that the
machine has not given out yet, compiles kernels, and prepares a branch when it is taken. A successor
does so beside the job. It is with nobody then, so that what is summed is its own; it computes with
zeros; and all that the run has assigned is taken back, but for the variables of the state that the
successor is about to be given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import cancellation
from tensorflow.python.framework import op_def_registry

from tfrun.engine import own_copies, script_state

# Operations that TensorFlow calls stateful, and of which nothing stays but in variables. Those that
# call Python are ours, where the script's steps call none.
_OWN = frozenset(
    (
        *("Assert", "Case", "DeepCopy", "If", "PyFunc", "QueueDequeueV2"),
        *("StatefulPartitionedCall", "Timestamp", "VarHandleOp"),
    )
)
_OF_VARIABLES = ("Assign", "ReadVariable", "Resource", "Rng", "VarIsInitialized")
_LOOPS = frozenset(("While", "StatelessWhile"))  # of zeros, perhaps without an end


def run(turns: Any, call: Any, specs: Sequence[tf.TensorSpec], given: Collection[int]) -> None:
    """Runs it, or has TensorFlow place and optimize its operations where a run would leave more.

    Args:
      turns: the replicas of this worker, which is alone.
      call: see `loop_traces.Traces`; it has been traced for `specs`.
      specs: of what it is called with.
      given: the ids of the handles of the variables that this process is about to be given.
    """
    if not all(s.shape.is_fully_defined() and s.dtype.is_numpy_compatible for s in specs):
        return
    traced = call.traced_for(tuple(specs))
    zeros = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
    besides, in_updates = own_copies.assigned(traced.graph)
    changes = besides | (in_updates - set(given))
    changed = [v for v in traced.graph.variables if id(v.handle) in changes]
    if not (_leaves_nothing(traced) and all(v.is_initialized() for v in changed)):
        return _prepare(traced, zeros)
    values = [variable.read_value() for variable in changed]
    try:
        turns.run(call, [zeros] * len(turns.held))
    except tf.errors.OpError:  # the script's step refuses zeros
        pass
    finally:
        for variable, value in zip(changed, values, strict=True):
            variable.assign(value, read_value=False)
        turns.copies.prepare_ahead(traced)  # its first run is still to come


def _leaves_nothing(traced: Any) -> bool:
    """Whether a run changes nothing but variables, calls nothing of the script's, and ends."""
    return not script_state.calls_python and all(map(_is_harmless, _operations(traced)))


def _is_harmless(name: str) -> bool:
    if name in _OWN or name.startswith(_OF_VARIABLES):
        return True
    known = op_def_registry.get(name)
    return known is not None and not known.is_stateful and name not in _LOOPS


def _operations(traced: Any) -> Iterator[str]:
    """The types of its operations, and of those of the functions that it calls."""
    definition = traced.graph.as_graph_def()
    functions = {function.signature.name for function in definition.library.function}
    for nodes in (definition.node, *(f.node_def for f in definition.library.function)):
        yield from (node.op for node in nodes if node.op not in functions)


def _prepare(traced: Any, given: Sequence[tf.Tensor]) -> None:
    """TensorFlow prepares a function before it looks whether it was cancelled."""
    manager = cancellation.CancellationManager()
    manager.start_cancel()
    try:
        manager.get_cancelable_function(traced)(given)
    except tf.errors.CancelledError:
        pass
