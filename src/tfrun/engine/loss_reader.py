"""Finds who computed a tensor: in a graph, or as recorded while TensorFlow executes eagerly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks, ops


@dataclass(frozen=True, kw_only=True)
class Op:
    """An operation that has been done, or stands in a graph.

    Attributes:
      type: TensorFlow's name of it.
      inputs: tensors.
      attr: gives an attribute by its name.
      graph: where it stands; None when it has been done.
      outputs: tensors.
    """

    type: str
    inputs: Sequence[Any]
    attr: Callable[[str], Any]
    graph: Any
    outputs: Sequence[Any]


class EagerRecorder:
    """Remembers what one thread computes eagerly, for as long as a step lasts."""

    def __init__(self) -> None:
        self._ops: dict[int, Op] = {}

    def __call__(
        self, op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph=None
    ) -> None:
        """As TensorFlow calls it."""
        if graph is not None:
            return
        named = dict(zip(attrs[::2], attrs[1::2], strict=False)) if attrs else {}
        name = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
        op = Op(type=name, inputs=inputs, attr=named.__getitem__, graph=None, outputs=outputs)
        self._ops.update((id(output), op) for output in outputs)  # the op holds them: ids last

    def op(self, tensor: Any) -> Op | None:
        """Who computed `tensor`."""
        return self._ops.get(id(tensor))

    @contextlib.contextmanager
    def records(self) -> Iterator[None]:
        """Records what the block computes."""
        op_callbacks.add_op_callback(self)
        try:
            yield
        finally:
            op_callbacks.remove_op_callback(self)

    @contextlib.contextmanager
    def pauses(self) -> Iterator[None]:
        """Records nothing of what the block computes."""
        op_callbacks.remove_op_callback(self)
        try:
            yield
        finally:
            op_callbacks.add_op_callback(self)


class LossReader:
    """Finds who computed a tensor.

    Args:
      recorder: of what is executed eagerly.
    """

    def __init__(self, recorder: EagerRecorder | None = None) -> None:
        self._recorder = recorder
        self._captures: dict[int, tuple[int, dict[int, Any]]] = {}

    def source(self, tensor: Any) -> Any:
        """The tensor itself, where a nested function has been given it from outside."""
        while not is_eager(tensor) and tensor.op.type == "Placeholder":
            outer = self._captured(tensor.graph).get(id(tensor))
            if outer is None:
                break
            tensor = outer
        return tensor

    def op(self, tensor: Any) -> Op | None:
        """Who computed `tensor`; None for an argument, or what was computed before."""
        if is_eager(tensor):
            return self._recorder.op(tensor) if self._recorder else None
        op = tensor.op
        if op.type == "Placeholder":
            return None
        return Op(
            type=op.type,
            inputs=tuple(op.inputs),
            attr=op.get_attr,
            graph=op.graph,
            outputs=tuple(op.outputs),
        )

    def _captured(self, graph: Any) -> dict[int, Any]:
        """By the ids of a function's placeholders: what they stand for outside."""
        pairs = getattr(graph, "captures", ())
        count, known = self._captures.get(id(graph), (-1, {}))
        if count != len(pairs):
            known = {id(inner): outer for outer, inner in pairs}
            self._captures[id(graph)] = (len(pairs), known)
        return known


def function_of(op: Op) -> Any:
    """The graph that an op calls; None for others."""
    if op.graph is None or op.type not in ("PartitionedCall", "StatefulPartitionedCall"):
        return None
    try:
        return op.graph._get_function(op.attr("f").name).graph
    except (AttributeError, KeyError, ValueError):
        return None


def known(tensor: Any) -> Any:
    """A tensor's value where it is known by now; else None."""
    if is_eager(tensor):
        return tensor.numpy() if tensor.dtype not in (tf.resource, tf.variant) else None
    return tf.get_static_value(tensor)


def is_eager(tensor: Any) -> bool:
    """Whether a tensor has a value already, and no graph."""
    return isinstance(tensor, ops.EagerTensor)
