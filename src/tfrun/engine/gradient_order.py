"""Has a graph compute what is sent first before what is sent later.

A TensorFlow of one thread computes the gradients of weights last, since nothing else of the
backward pass waits for them: then nothing is left to compute while they are sent. What a pack needs
and no earlier pack does is made to wait here until the earlier one has been handed in.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps, auto_control_deps_utils

_READS = auto_control_deps_utils.RESOURCE_READ_OPS


class Stages:
    """The operations that a graph has by now, by the first pack that needs them.

    Args:
      packs: the tensors of each, in the order in which they are sent.
    """

    def __init__(self, packs: Sequence[Sequence[tf.Tensor]]) -> None:
        self._graph: Any = tf.compat.v1.get_default_graph()
        self._stage: dict[Any, int] = {}
        self._ordered: list[Any] = []  # each one behind all that it needs
        self._is_free = False
        if _has_one_thread():
            for number, tensors in enumerate(packs):
                for tensor in tensors:
                    if tensor.graph is self._graph:
                        self._add(tensor.op, number)
            self._is_free = not self._has_own_order()

    def follow(self, begun: Sequence[tf.Tensor]) -> None:
        """Has each stage but the first wait for the pack before it.

        Nothing changes where something in the graph has an order of its own that might contradict.

        Args:
          begun: says of each pack that it is handed in.
        """
        if not self._is_free:
            return
        waits: set[Any] = set()  # for the pack before, itself or through another one
        for op in self._ordered:
            stage = self._stage[op]
            if not stage:
                continue
            needed = _needed(op)
            if any(self._stage.get(other) == stage and other in waits for other in needed):
                waits.add(op)
            elif any(self._stage.get(other, 0) < stage for other in needed):
                op._add_control_input(begun[stage - 1].op)
                waits.add(op)

    def _add(self, op: Any, number: int) -> None:
        """Notes that a pack needs an operation, and what that needs."""
        if op in self._stage:
            return
        self._stage[op], path = number, [(op, iter(_needed(op)))]
        while path:
            last, needed = path[-1]
            for other in needed:
                if other not in self._stage:
                    self._stage[other] = number
                    path.append((other, iter(_needed(other))))
                    break
            else:
                self._ordered.append(last)
                path.pop()

    def _has_own_order(self) -> bool:
        """Whether what depends on a later stage may have to be done before a pack is handed in.

        TensorFlow keeps the order of operations with effects, as the script has written them.
        """
        later: set[Any] = set()
        read, written = set[str](), set[str]()
        for op in self._graph.get_operations():
            is_later = self._stage.get(op, 0) > 0 or any(one in later for one in _needed(op))
            if is_later:
                later.add(op)
            resources = {tensor.name for tensor in op.inputs if tensor.dtype == tf.resource}
            if not resources and not auto_control_deps.op_is_stateful(op):
                continue
            if op.type in _READS:
                read |= resources if is_later else set()
            elif is_later:
                return True
            elif op in self._stage:
                written |= resources
        return bool(read & written)


def _has_one_thread() -> bool:
    """Whether TensorFlow does one operation at a time."""
    stated = tf.config.threading.get_inter_op_parallelism_threads()
    stated = stated or int(os.environ.get("TF_NUM_INTEROP_THREADS") or 0)
    return (stated or len(os.sched_getaffinity(0))) == 1


def _needed(op: Any) -> list[Any]:
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]
