"""The operations that losses are made with, and how to repeat them.

`ADDITIVE` ones give the sum of what they would give for parts of their operands; means and sums
over the samples are told from each other behind them. All others of `MATHEMATICS` have to be given
the whole batch's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrun.engine.loss_reader import Op, known

REDUCTIONS = frozenset({"Mean", "Sum", "Prod", "Max", "Min", "All", "Any", "L2Loss"})


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


def _reduced(function: Callable) -> Callable:
    def again(op: Op, value: Any) -> Any:
        return function(value, axis=known(op.inputs[1]), keepdims=op.attr("keep_dims"))

    return again


def _plain(function: Callable) -> Callable:
    return lambda op, *values: function(*values)


def _same(op: Op, value: Any) -> Any:
    return tf.identity(value)


def _shaped(op: Op, value: Any) -> Any:
    return tf.reshape(value, tf.shape(op.outputs[0]))


_REDUCED: dict[str, Callable] = {
    "Mean": _reduced(tf.reduce_mean),
    "Sum": _reduced(tf.reduce_sum),
    "Prod": _reduced(tf.reduce_prod),
    "Max": _reduced(tf.reduce_max),
    "Min": _reduced(tf.reduce_min),
    "All": _reduced(tf.reduce_all),
    "Any": _reduced(tf.reduce_any),
    "L2Loss": _plain(tf.nn.l2_loss),
}
_ADDED: dict[str, Callable] = {
    "AddV2": _plain(tf.add),
    "Add": _plain(tf.add),
    "Sub": _plain(tf.subtract),
    "Neg": _plain(tf.negative),
    "AddN": lambda op, *values: tf.add_n(values),
    "Identity": _same,
    "StopGradient": _plain(tf.stop_gradient),
    "PreventGradient": _same,
    "CheckNumerics": _same,
    "EnsureShape": _same,
    "Snapshot": _same,
    "Cast": lambda op, value: tf.cast(value, op.outputs[0].dtype),
    "Pack": lambda op, *values: tf.stack(values, axis=op.attr("axis")),
    "ConcatV2": lambda op, *values: tf.concat(values, axis=known(op.inputs[-1])),
    "Reshape": _shaped,
    "Squeeze": _shaped,
    "ExpandDims": _shaped,
}
_OTHERS: dict[str, Callable] = {
    "Mul": _plain(tf.multiply),
    "RealDiv": _plain(tf.realdiv),
    "DivNoNan": _plain(tf.math.divide_no_nan),
    "Pow": _plain(tf.pow),
    "Square": _plain(tf.square),
    "SquaredDifference": _plain(tf.math.squared_difference),
    "Sqrt": _plain(tf.sqrt),
    "Rsqrt": _plain(tf.math.rsqrt),
    "Reciprocal": _plain(tf.math.reciprocal),
    "Exp": _plain(tf.exp),
    "Expm1": _plain(tf.math.expm1),
    "Log": _plain(tf.math.log),
    "Log1p": _plain(tf.math.log1p),
    "Abs": _plain(tf.abs),
    "Sign": _plain(tf.sign),
    "Tanh": _plain(tf.tanh),
    "Sigmoid": _plain(tf.sigmoid),
    "Softplus": _plain(tf.math.softplus),
    "Relu": _plain(tf.nn.relu),
    "Maximum": _plain(tf.maximum),
    "Minimum": _plain(tf.minimum),
    "SelectV2": _plain(tf.where),
    "Greater": _plain(tf.greater),
    "GreaterEqual": _plain(tf.greater_equal),
    "Less": _plain(tf.less),
    "LessEqual": _plain(tf.less_equal),
    "IsFinite": _plain(tf.math.is_finite),
    "IsNan": _plain(tf.math.is_nan),
    "LogicalNot": _plain(tf.logical_not),
    "LogicalAnd": _plain(tf.logical_and),
}
_DONE = _ADDED | _OTHERS
_ONE_OPERAND = frozenset({"Reshape", "Squeeze", "ExpandDims", *_REDUCED})

ADDITIVE = frozenset({*_ADDED, "Sum", "Mean"})
MATHEMATICS = frozenset(_DONE)
