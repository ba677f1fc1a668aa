"""Finds which operation computed a tensor, in a graph or recorded eagerly, and does it again.

`ADDITIVE` operations give the sum of what they would give for parts of their operands; means and
sums over the samples are told from each other behind them. All others of `MATHEMATICS` have to be
given the whole batch's numbers.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_callbacks, op_def_registry, ops

_FUNCTIONS = ("func", "list(func)")
_RANDOM = ("Random", "Rng", "TruncatedNormal", "Multinomial")  # in the names of TensorFlow's ops


@dataclass(frozen=True, kw_only=True)
class Op:
    """An operation that has been done, or stands in a graph.

    Attributes:
      type: TensorFlow's name of it.
      inputs: tensors.
      attr: gives an attribute by its name.
      graph: where it stands; None when it has been done.
      outputs: tensors.
      attributes: names and values by turns, where it has been done.
    """

    type: str
    inputs: Sequence[Any]
    attr: Callable[[str], Any]
    graph: Any
    outputs: Sequence[Any]
    attributes: Sequence[Any] = ()


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
        attributes = tuple(attrs or ())
        named: dict[str, Any] = dict(zip(attributes[::2], attributes[1::2], strict=False))
        op = Op(
            type=op_type.decode() if isinstance(op_type, bytes) else str(op_type),
            inputs=inputs,
            attr=named.__getitem__,
            graph=None,
            outputs=outputs,
            attributes=attributes,
        )
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
        return in_graph(op)

    def _captured(self, graph: Any) -> dict[int, Any]:
        """By the ids of a function's placeholders: what they stand for outside."""
        pairs = getattr(graph, "captures", ())
        count, known = self._captures.get(id(graph), (-1, {}))
        if count != len(pairs):
            known = {id(inner): outer for outer, inner in pairs}
            self._captures[id(graph)] = (len(pairs), known)
        return known


def in_graph(op: Any) -> Op:
    return Op(
        type=op.type,
        inputs=tuple(op.inputs),
        attr=op.get_attr,
        graph=op.graph,
        outputs=tuple(op.outputs),
    )


def function_of(op: Op) -> Any:
    """The graph that an op calls; None for others."""
    if op.graph is None or op.type not in ("PartitionedCall", "StatefulPartitionedCall"):
        return None
    return function_named(op.graph, op.attr("f").name)


def function_named(graph: Any, name: str) -> Any:
    """The graph of a function that is known in another one; None where no Python has made it."""
    try:
        return graph._get_function(name).graph
    except (AttributeError, KeyError, ValueError):
        return None


def samples_of(data: Any) -> tuple[list[Any], int | None]:
    """The tensors that a step is called with, and how many samples they have, where it is known."""
    leaves = tf.nest.flatten(data, expand_composites=True)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    sizes = [tensor.shape[0] for tensor in tensors if tensor.shape.rank]
    return tensors, next((size for size in sizes if size is not None), None)


def draws(op: Op, also: Collection[int] = ()) -> bool:
    """Whether an operation gives other random numbers on another replica.

    Args:
      op: the operation.
      also: the ids of the graphs that are known to do so.
    """
    if any(word in op.type for word in _RANDOM):
        return not op.type.startswith("Stateless")  # which follow from what they are given
    function = function_of(op)
    if function is None:
        return False
    return id(function) in also or any(
        draws(in_graph(inner), also) for inner in function.get_operations()
    )


def known(tensor: Any) -> Any:
    """A tensor's value where it is known by now; else None."""
    if is_eager(tensor):
        return tensor.numpy() if tensor.dtype not in (tf.resource, tf.variant) else None
    value = tf.get_static_value(tensor)
    if value is not None or tensor.op.type not in ("Prod", "Cast"):
        return value
    # TensorFlow does not look into these: a number of all, of known sizes, as Keras divides by it.
    of = known(tensor.op.inputs[0])
    if of is None:
        return None
    return np.asarray(np.prod(of) if tensor.op.type == "Prod" else of, tensor.dtype.as_numpy_dtype)


def is_eager(tensor: Any) -> bool:
    """Whether a tensor has a value already, and no graph."""
    return isinstance(tensor, ops.EagerTensor)


def is_zero(tensor: Any) -> bool:
    """Whether a tensor is known by now, and nothing."""
    value = known(tensor)
    return value is not None and not value.any()


def is_argument(tensor: Any) -> bool:
    """Whether it is one of a function that is being traced: whatever that gets, it may be data."""
    is_number = tensor.dtype.is_floating or tensor.dtype.is_integer
    return not is_eager(tensor) and tensor.op.type == "Placeholder" and is_number


def operands(op: Op) -> Sequence[Any]:
    """An operation's inputs without those that say how, such as axes."""
    if op.type == "ConcatV2":
        return op.inputs[:-1]
    return op.inputs[:1] if op.type in _ONE_OPERAND else op.inputs


def again(op: Op, values: Sequence[Any]) -> Any:
    """Does an operation of `MATHEMATICS` or `REDUCTIONS` with other operands.

    Args:
      op: the operation.
      values: in the place of its `operands`.
    """
    return (_REDUCED if op.type in REDUCTIONS else _DONE)[op.type](op, *values)


def can_be_copied(op: Op) -> bool:
    """Whether `copied` gives what `op` would give for other inputs."""
    if op.graph is None:
        definition = op_def_registry.get(op.type)
        if definition is None:
            return False  # a function of the script's
        calls = any(attr.type in _FUNCTIONS for attr in definition.attr)
    else:
        there: Any = op.outputs[0].op
        definition, attributes = there.op_def, there.node_def.attr
        calls = any(attributes[name].HasField("func") for name in attributes)
    return not (definition.is_stateful or calls)


def copied(op: Op, inputs: Sequence[Any]) -> Sequence[Any]:
    """Any operation once more, with other inputs."""
    if op.graph is None:
        return execute.execute(
            op.type.encode(), len(op.outputs), list(inputs), op.attributes, context.context()
        )
    there: Any = op.outputs[0].op
    types = [output.dtype for output in there.outputs]
    attributes = dict(there.node_def.attr)
    return there.graph._create_op_internal(
        there.type, list(inputs), types, attrs=attributes, op_def=there.op_def
    ).outputs


def _reduced(op: Op, value: Any) -> Any:
    function = getattr(tf, f"reduce_{op.type.lower()}")
    return function(value, axis=known(op.inputs[1]), keepdims=op.attr("keep_dims"))


def _plain(op: Op, *values: Any) -> Any:
    function = getattr(tf.raw_ops, op.type)
    return function(**dict(zip(inspect.signature(function).parameters, values, strict=False)))


def _same(op: Op, value: Any) -> Any:
    return tf.identity(value)


def _shaped(op: Op, value: Any) -> Any:
    return tf.reshape(value, tf.shape(op.outputs[0]))


_REDUCED: dict[str, Callable] = {
    **dict.fromkeys(("Mean", "Sum", "Prod", "Max", "Min", "All", "Any"), _reduced),
    "L2Loss": _plain,
}
_ADDED: dict[str, Callable] = {
    **dict.fromkeys(("AddV2", "Add", "Sub", "Neg", "StopGradient"), _plain),
    **dict.fromkeys(("Identity", "PreventGradient", "CheckNumerics", "EnsureShape"), _same),
    "Snapshot": _same,
    **dict.fromkeys(("Reshape", "Squeeze", "ExpandDims"), _shaped),
    "AddN": lambda op, *values: tf.add_n(values),
    "Cast": lambda op, value: tf.cast(value, op.outputs[0].dtype),
    "Pack": lambda op, *values: tf.stack(values, axis=op.attr("axis")),
    "ConcatV2": lambda op, *values: tf.concat(values, axis=known(op.inputs[-1])),
}
_OTHERS = (
    *("Mul", "RealDiv", "DivNoNan", "Pow", "Square", "SquaredDifference", "Sqrt", "Rsqrt"),
    *("Reciprocal", "Exp", "Expm1", "Log", "Log1p", "Abs", "Sign", "Tanh", "Sigmoid", "Softplus"),
    *("Relu", "Maximum", "Minimum", "SelectV2", "Greater", "GreaterEqual", "Less", "LessEqual"),
    *("IsFinite", "IsNan", "LogicalNot", "LogicalAnd"),
)
_DONE = _ADDED | dict.fromkeys(_OTHERS, _plain)
_ONE_OPERAND = frozenset({"Reshape", "Squeeze", "ExpandDims", *_REDUCED})

ADDITIVE = frozenset({*_ADDED, "Sum", "Mean"})
MATHEMATICS = frozenset(_DONE)
REDUCTIONS = frozenset(_REDUCED)
