"""Operations in which samples meet other samples: products, broadcasts, sums along a batch.

What comes out is of no sample alone, and N parts of a batch do not make up what one whole one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfrun.engine.loss_reader import ADDITIVE, MATHEMATICS, Op, known

BROADCASTS = (MATHEMATICS - ADDITIVE) | {"AddV2", "Add", "Sub", "Equal", "NotEqual"}
_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"),
    **dict.fromkeys(("BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
}
# Where they have the axis along which they work.
_ALONG = {
    **dict.fromkeys(("Cumsum", "Cumprod", "CumulativeLogsumexp", "ReverseV2"), 1),
    "Roll": 2,
}
_ALONG_THE_LAST = frozenset({"TopKV2", "TopK", "Softmax", "LogSoftmax", "NthElement"})


def works_along(op: Op, axis: int) -> bool:
    """Whether an operation makes something of all that is along an axis of its first input."""
    rank = op.inputs[0].shape.rank
    if rank is None:
        return False
    if op.type in _ALONG_THE_LAST:
        return axis == rank - 1
    place = _ALONG.get(op.type)
    axes = None if place is None else known(op.inputs[place])
    return axes is not None and axis in [int(each) % rank for each in axes.flat]


def letters_of(op: Op) -> Sequence[str]:
    """The operands of a product's dimensions, as `einsum` names them; none of something else."""
    if op.type == "Einsum":
        equation = op.attr("equation")
        equation = equation.decode() if isinstance(equation, bytes) else equation
        operands_only = equation.split("->")[0]
        return () if "." in operands_only else operands_only.split(",")
    if op.type not in _PRODUCTS:
        return ()
    before = ["ABCDEFGH"[10 - (tensor.shape.rank or 2) :] for tensor in op.inputs]
    a, b = (op.attr(name) for name in _PRODUCTS[op.type])
    return before[0] + ("ji" if a else "ij"), before[1] + ("kj" if b else "jk")


def meet_by_broadcast(placed: Sequence[tuple[Any, int]]) -> bool:
    """Whether tensors are broadcast along each other's samples.

    Args:
      placed: tensors, and which of their dimensions is that of the samples.
    """
    sizes = [tensor.shape.as_list()[::-1] for tensor, _ in placed]
    axes = [tensor.shape.rank - 1 - axis for tensor, axis in placed]  # from the right

    def is_one(i: int, axis: int) -> bool:
        return axis >= len(sizes[i]) or sizes[i][axis] == 1

    pairs = [(i, j) for i in range(len(placed)) for j in range(i)]
    return any(is_one(i, axes[j]) and is_one(j, axes[i]) for i, j in pairs)
