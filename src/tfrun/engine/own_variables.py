"""Warns of TensorFlow variables that each worker has for itself, and that a step makes differ.

A variable that is made outside the scope, or there without an aggregation, is a number of each
worker's own. A step may count in it, for all count alike; but what it makes of the data is of this
worker's part, and nothing else would say so. What is meant, a sum or a mean, the script alone
knows. Keras's variables are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tfrun.engine import replica, script_state
from tfrun.engine.script_lines import KERAS, TFRUN, asked_by, at_script_line
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.world import take_one_for_good
from tfrun.process import channel

CODE = "TFRUN-506"
# What these give is the same on all workers: what they have summed, and what variables hold.
SUMS = ("Collective", "PyFunc", "EagerPyFunc")
_SHARED = (*SUMS, "ReadVariableOp", "Const")


def look(variable: Any, given: Iterable[Any]) -> None:
    """Looks at an assignment of a step that is being traced.

    Args:
      variable: what is assigned.
      given: what the script gives: values, or of some rows the values and which ones they are.
    """
    run = replica.current()
    if run is None or run.updating or run.context.num_replicas_in_sync == 1:
        return
    if _of_keras():
        return
    made = getattr(variable.handle, "_distributed_container", lambda: None)()
    if made is not None and made.aggregation != tf.VariableAggregation.NONE:
        return  # TensorFlow sums it, now or when it is read
    if _are_of_own_data(given):
        if run.losses is not None:
            run.losses.keeps_own = True
        how = "outside the strategy's scope" if made is None else "without an aggregation"
        text = (
            f"the variable {variable.name.removesuffix(':0')!r} was made {how}, and the step "
            "assigns it what each worker computes from its own part of the data"
            f"{at_script_line()}, so it differs between workers, and who starts again is given "
            "another one's. Sum or average the value over the workers with "
            "`tf.distribute.get_replica_context().all_reduce`, or use a keras.metrics object"
        )
        channel.emit(reports.DoubtRaised(code=CODE, text=text))


def look_at_table(given: Iterable[Any]) -> None:
    """Looks at a step that is being traced, and that changes a lookup table.

    Args:
      given: the keys, and what they are to stand for.

    Raises:
      TfrunError: TFRUN-518 where replicas of this worker would change one table in turns.
    """
    run = replica.current()
    if run is None:
        return
    script_state.note_table()
    why = "the step changes a lookup table"
    if tf.is_tensor(run.number) and not take_one_for_good(why):
        raise TfrunError(
            "TFRUN-518",
            f"{why}{at_script_line()}, which all replicas of a worker have together",
            where="the model's train_step, or what it calls",
            expected="with --replicas, a state in variables",
            fix="Keep it in a tf.Variable or a keras.metrics object, or leave out --replicas",
        )
    if run.context.num_replicas_in_sync > 1 and _are_of_own_data(given):
        text = (
            "the step changes a lookup table by what each worker has of the data"
            f"{at_script_line()}, so each worker has another one, and who starts again none. "
            "Give it what `tf.distribute.get_replica_context().all_gather` has gathered"
        )
        channel.emit(reports.DoubtRaised(code=CODE, text=text))


def _are_of_own_data(given: Iterable[Any]) -> bool:
    values = [
        value
        for one in given
        for value in ((one.values, one.indices) if isinstance(one, tf.IndexedSlices) else (one,))
    ]
    return any(isinstance(value, tf.Tensor) and is_of_own_data(value) for value in values)


def _of_keras() -> bool:
    """Whether Keras assigns, or tfrun: Keras's variables are adopted or refused elsewhere."""
    return asked_by(sys._getframe(3), (TFRUN, KERAS))


def is_of_own_data(
    value: tf.Tensor, states_size: Callable[[Any], bool] = lambda tensor: False
) -> bool:
    """Whether a tensor of a step is computed from what the step is given on this replica.

    Args:
      value: the tensor.
      states_size: whether a constant is the size of that, see loss_terms.py.
    """
    seen, left = set(), [value]
    while left:
        tensor: Any = left.pop()
        if id(tensor) in seen or not hasattr(tensor, "graph"):
            continue  # a value that is known when the step is traced
        seen.add(id(tensor))
        op = tensor.op
        if states_size(tensor):
            return True
        if op.type == "Placeholder":
            outer = {id(inner): outer for outer, inner in getattr(tensor.graph, "captures", ())}
            if id(tensor) in outer:
                left.append(outer[id(tensor)])
            elif tensor.shape.rank != 0:  # a number is no data: a rate, a count of steps
                return True
        elif op.type.startswith("Iterator"):
            return True
        elif op.type == "IdentityN":  # of a custom gradient: its results, and what it was given
            left.append(op.inputs[tensor.value_index])
        elif not op.type.startswith(_SHARED) and not _sums(op):
            left += op.inputs
    return False


def _sums(op: Any) -> bool:
    """Whether a call, a condition or a loop computes something that all workers have summed."""
    for key in op.node_def.attr:
        attribute = op.node_def.attr[key]
        for named in (attribute.func, *attribute.list.func):
            function = op.graph._get_function(named.name) if named.name else None
            nodes = function.cached_definition.node_def if function is not None else ()
            if any(node.op.startswith(SUMS) for node in nodes):
                return True
    return False
