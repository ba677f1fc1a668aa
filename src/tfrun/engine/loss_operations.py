"""The operations that losses are made with, and how to repeat them.

`ADDITIVE` ones give the sum of what they would give for parts of their operands; means and sums
over the samples are told from each other behind them. All others of `MATHEMATICS` have to be given
the whole batch's numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrun.engine.loss_reader import Op, known


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
