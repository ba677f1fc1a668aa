"""Splits a loss into its terms: means or sums over samples, and numbers that only weights decide.

N replicas have a part of the batch each, and their gradients are added up. What a replica's term
then has to be multiplied with, to be one worker's together, follows from how it was computed: a
mean counts by the replica's share of the samples, a sum as it is, and what is the same on all
replicas (a regularizer) by any shares that add up to one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import tensorflow as tf

from tfrun.engine.loss_pairs import BROADCASTS, letters_of, meet_by_broadcast, works_along
from tfrun.engine.loss_reader import (
    ADDITIVE,
    MATHEMATICS,
    REDUCTIONS,
    LossReader,
    Op,
    draws,
    function_of,
    is_argument,
    is_eager,
    is_zero,
    known,
    operands,
)


class Term(enum.Enum):
    """What a number is, as seen from the replicas.

    FIXED: the same on all of them: of weights, constants.
    MEAN: the mean over a replica's samples.
    SUM: the sum over a replica's samples, or what is weighed already.
    PART: the mean over a replica's samples, divided by the number of replicas.
    COUNT: how many samples a replica has.
    DRAWN: of random numbers that do not follow from the samples: one worker has drawn them once.
    ROWS: not one number, but some for each sample.
    PAIRS: numbers for each pair of samples, or what follows from such: of no sample alone.
    MIXED: computed from several of these.
    UNKNOWN: computed from a replica's samples otherwise.
    """

    FIXED = enum.auto()
    MEAN = enum.auto()
    SUM = enum.auto()
    PART = enum.auto()
    COUNT = enum.auto()
    DRAWN = enum.auto()
    ROWS = enum.auto()
    PAIRS = enum.auto()
    MIXED = enum.auto()
    UNKNOWN = enum.auto()


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanOver:
    """The mean over something else than samples, such as the tokens that a mask leaves.

    Attributes:
      count: gives how many of them a replica has, a scalar tensor.
    """

    count: Callable[[], Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class LossParts:
    """What samples have, divided by what all of them have: its sum is a mean.

    Attributes:
      mean: which.
    """

    mean: Term | MeanOver


Kind = Term | MeanOver | LossParts


class Walk:
    """Finds the kinds of the tensors of one replica's step.

    Args:
      reader: tells who computed a tensor.
      data: the tensors that the step was called with.
      batch: this replica's number of samples where it is known beforehand; also an attribute.
      marked: the kinds of tensors whose maker has said them, by `id`.
    """

    def __init__(
        self,
        reader: LossReader,
        data: Collection[Any],
        batch: int | None,
        marked: Mapping[int, tuple[Any, Kind]],
    ) -> None:
        self._reader, self._data, self.batch, self._marked = reader, data, batch, marked
        self._is_data = {id(tensor) for tensor in data}
        self._kinds: dict[int, tuple[Any, Kind]] = {}
        self._depends: dict[int, tuple[Any, bool]] = {}
        self._drawn: dict[int, tuple[Any, bool]] = {}

    def kind(self, tensor: Any) -> Kind:
        """What `tensor` is."""
        start = self._reader.source(tensor)
        stack = [start]
        while stack:  # no recursion: there are chains of a thousand operations
            here = stack[-1]
            if self._known(here) is not None:
                stack.pop()
                continue
            op = self._reader.op(here) if self._depends_on_data(here) else None
            inputs = [self._reader.source(each) for each in op.inputs] if op else []
            missing = [each for each in inputs if self._known(each) is None]
            stack += missing
            if not missing:  # holds the tensor, whose id then stays its own
                kind = self._kind(here)
                if kind is Term.PAIRS and here.shape.rank == 0:
                    kind = Term.UNKNOWN
                self._kinds[id(here)] = (here, kind)
        return cast(Kind, self._known(start))

    def _known(self, tensor: Any) -> Kind | None:
        found = self._marked.get(id(tensor)) or self._kinds.get(id(tensor))
        return found[1] if found else None

    def mark_drawn(self, tensor: Any) -> None:
        """Says that a tensor is one of this replica's own random numbers, or decides them."""
        self._drawn[id(tensor)] = (tensor, True)
        if not is_eager(tensor):
            self._drawn[id(tensor.graph)] = (tensor.graph, True)

    def is_drawn(self, tensor: Any) -> bool:
        """Whether random numbers of the whole batch, not of single samples, had a part in it.

        A gradient that a tape has given is looked at no further: each replica's is of its own.
        """

        def decide(here: Any, op: Op | None) -> bool | None:
            kind = self.kind(here)
            by_sample = kind in (Term.ROWS, Term.PAIRS, Term.COUNT) or isinstance(kind, LossParts)
            if op is None or id(here) in self._marked or by_sample:
                return False
            return draws(op, self._drawn) or None

        return self._comes_from(tensor, self._drawn, decide)

    def source(self, tensor: Any) -> Any:
        """The tensor itself, where a nested function has been given it from outside."""
        return self._reader.source(tensor)

    def op(self, tensor: Any) -> Op | None:
        """Who computed `tensor`."""
        return self._reader.op(self._reader.source(tensor))

    def _kind(self, tensor: Any) -> Kind:
        if not self._depends_on_data(tensor):
            return Term.FIXED
        op = self._reader.op(tensor)
        if op is None:
            return Term.ROWS if tensor.shape.rank != 0 else Term.UNKNOWN
        if op.type == "Const":
            return Term.COUNT  # see `states_size`
        if op.type in ("Shape", "Size"):
            rows = self.kind(op.inputs[0]) in (Term.ROWS, Term.PAIRS)
            return Term.COUNT if rows else Term.FIXED
        if op.type == "StridedSlice" and self.kind(op.inputs[0]) is Term.COUNT:
            begin = known(op.inputs[1])
            return Term.COUNT if begin is None or begin.flat[0] == 0 else Term.FIXED
        if op.type == "Unpack" and self.kind(op.inputs[0]) is Term.COUNT:
            return Term.COUNT if tensor is op.outputs[0] else Term.FIXED
        if op.type == "Range" and all(self.kind(end) is Term.FIXED for end in op.inputs):
            return Term.FIXED  # up to the length of the samples, say
        kinds = [self.kind(each) for each in op.inputs]
        if Term.PAIRS in kinds or self._mixes(op, kinds):
            return Term.PAIRS
        if op.type in REDUCTIONS:
            return self._of_reduction(op)
        if op.type in MATHEMATICS:
            return self._of_mathematics(op)
        function = function_of(op)
        if function is not None:
            return self._of_function(op, function, tensor)
        if op.type == "GatherV2" and self.kind(op.inputs[0]) is Term.ROWS:
            return Term.ROWS
        has_rows = self.rows_axis(tensor) is not None or self._has_several_of_each(tensor, kinds)
        return Term.ROWS if has_rows else Term.UNKNOWN

    def _has_several_of_each(self, tensor: Any, kinds: Sequence[Kind]) -> bool:
        """Whether a tensor's rows are the samples' parts: their words, say, one after the other."""
        rows = tensor.shape[0] if tensor.shape.rank else None
        return Term.ROWS in kinds and bool(rows and self.batch and rows % self.batch == 0)

    def mixes(self, op: Op) -> bool:
        """Whether samples meet other samples in an operation, and have not before."""
        kinds = [self.kind(tensor) for tensor in op.inputs]
        return Term.PAIRS not in kinds and self._mixes(op, kinds)

    def _mixes(self, op: Op, kinds: Sequence[Kind]) -> bool:
        if self._meets_number_of_all(op, kinds):
            return True
        if kinds and kinds[0] is Term.ROWS and self.batch != 1:
            axis = self.rows_axis(op.inputs[0])
            if axis is not None and works_along(op, axis):
                return True
        rows = [t for t, kind in zip(op.inputs, kinds, strict=True) if kind is Term.ROWS]
        if len(rows) < 2 or self.batch == 1 or any(t.shape.rank is None for t in rows):
            return False
        placed = [(t, axis) for t in rows if (axis := self.rows_axis(t)) is not None]
        if op.type in BROADCASTS:
            return meet_by_broadcast(placed)
        letters = letters_of(op)
        if not placed or [len(each) for each in letters] != [t.shape.rank for t, _ in placed]:
            return False
        first, second = (each[axis] for each, (_, axis) in zip(letters, placed, strict=True))
        return first != second

    def _meets_number_of_all(self, op: Op, kinds: Sequence[Kind]) -> bool:
        """Whether what samples have meets a mean or sum of all, which is not added to each."""
        meets = op.type in BROADCASTS - {"Add", "AddV2"} and Term.ROWS in kinds
        divides = op.type in ("RealDiv", "DivNoNan")  # by a sum: it may be a part of a mean
        of_all = {Term.MEAN} if divides else {Term.MEAN, Term.SUM}
        found = zip(op.inputs, kinds, strict=True)
        numbers = [kind for tensor, kind in found if tensor.shape.rank == 0]
        is_there = any(kind in of_all or isinstance(kind, MeanOver) for kind in numbers)
        return meets and is_there and self.batch != 1

    def _of_reduction(self, op: Op) -> Kind:
        reduced = op.inputs[0]
        kind = self.kind(reduced)
        if kind is not Term.ROWS and not isinstance(kind, LossParts):
            is_number = reduced.shape.rank == 0 and op.type in ("Mean", "Sum")  # and stays one
            return kind if is_number else _combined(op.type, [kind])
        axis, rank = self.rows_axis(reduced) or 0, reduced.shape.rank
        axes = known(op.inputs[1]) if len(op.inputs) > 1 else None
        if axes is not None and rank and axis not in [int(a) % rank for a in axes.flat]:
            return kind
        if isinstance(kind, LossParts):
            return kind.mean if op.type == "Sum" else Term.UNKNOWN
        if op.type == "Mean":
            chosen = self._chosen(reduced)
            return Term.MEAN if chosen is None else MeanOver(count=lambda: tf.size(chosen))
        return Term.SUM if op.type in ("Sum", "L2Loss") else Term.UNKNOWN

    def _of_mathematics(self, op: Op) -> Kind:
        inputs = operands(op)
        kinds = [self.kind(tensor) for tensor in inputs]
        divides = op.type in ("RealDiv", "DivNoNan")
        if divides and kinds == [Term.SUM, Term.FIXED]:
            # Python's own `x.shape[0]` is a constant where batches have one size.
            divisor, summed = known(inputs[1]), self.op(inputs[0])
            added = summed.inputs[0].shape.num_elements() if summed and summed.inputs else None
            if divisor is not None and divisor.shape == () and self.batch != 1:
                return Term.MEAN if divisor in (self.batch, added) else Term.SUM
        if divides and kinds[0] is Term.ROWS:
            if kinds[1] is Term.COUNT:
                return LossParts(mean=Term.MEAN)
            if kinds[1] is Term.SUM:
                return LossParts(mean=MeanOver(count=lambda: inputs[1]))
        if op.type in ADDITIVE:  # nothing is added
            zeros = [k is Term.FIXED and is_zero(t) for t, k in zip(inputs, kinds, strict=True)]
            kinds = [k for k, zero in zip(kinds, zeros, strict=True) if not zero] or kinds
        return _combined(op.type, kinds)

    def _of_function(self, op: Op, function: Any, tensor: Any) -> Kind:
        place = next(i for i, output in enumerate(op.outputs) if output is tensor)
        pairs = list(zip(function.inputs, op.inputs, strict=False))
        data = [inner for inner, outer in pairs if self._depends_on_data(outer)]
        kind = self.inside(data, pairs).kind(function.outputs[place])
        # What counts inside of the function is not known outside.
        return kind if isinstance(kind, Term) and kind is not Term.MIXED else Term.UNKNOWN

    def inside(self, data: Collection[Any], pairs: Sequence[tuple[Any, Any]]) -> Walk:
        """The walk of a function's graph: of its `data`, and `pairs` of tensors in it and here."""
        # What it captures is read past its arguments: to find out of that again, in each function
        # that another one's result goes through, would take for ever.
        marked = {
            id(each): (each, self.kind(outer))
            for inner, outer in pairs
            for each in (inner, self._reader.source(outer))
        }
        walk = Walk(self._reader, data, self.batch, marked)
        walk._depends.update(self._depends)
        return walk

    def _depends_on_data(self, tensor: Any) -> bool:
        """Whether any of the step's samples, or how many they are, had a part in `tensor`."""

        def decide(here: Any, op: Op | None) -> bool | None:
            if (mark := self._marked.get(id(here))) is not None and mark[1] is not Term.FIXED:
                return True  # it may have been made unseen
            if id(here) in self._is_data or (op is None and is_argument(here)):
                return True
            return self.states_size(here) or None

        return self._comes_from(tensor, self._depends, decide)

    def states_size(self, tensor: Any) -> bool:
        """Whether it is what `tf.shape` or `tf.size` gives of samples, where batches have one size.

        TensorFlow puts a constant there then, by whose name alone it is known.
        """
        if is_eager(tensor) or tensor.op.type != "Const" or (self.batch or 1) == 1:
            return False
        name, value = tensor.op.name.rsplit("/", 1)[-1], known(tensor)
        if name.startswith("Shape") and value.ndim == 1:
            return bool(value.size) and value[0] == self.batch
        return name.startswith("Size") and value.ndim == 0 and value % self.batch == 0

    def _comes_from(
        self,
        tensor: Any,
        found: dict[int, tuple[Any, bool]],
        decide: Callable[[Any, Op | None], bool | None],
    ) -> bool:
        """Whether `decide` says so of `tensor`, or of something that it is computed from.

        Args:
          tensor: any.
          found: what is known already, by `id`; grows.
          decide: is given a tensor, and who computed it; None where its inputs decide.
        """
        start = self._reader.source(tensor)
        stack = [start]
        while stack:
            here = stack[-1]
            if id(here) in found:
                stack.pop()
                continue
            op = self._reader.op(here)
            decided = decide(here, op)
            inputs = [self._reader.source(i) for i in op.inputs] if op and decided is None else []
            if decided or any(found.get(id(each), (None, False))[1] for each in inputs):
                found[id(here)] = (here, True)
            elif missing := [each for each in inputs if id(each) not in found]:
                stack += missing
            else:
                found[id(here)] = (here, False)
        return found[id(start)][1]

    def rows_axis(self, tensor: Any) -> int | None:
        """Which of its dimensions is that of the samples; None when there is none."""
        if tensor.shape.rank is None:
            return 0
        sizes = tensor.shape.as_list()
        return next((i for i, size in enumerate(sizes) if size in (None, self.batch)), None)

    def _chosen(self, tensor: Any, far: int = 20) -> Any:
        """`tensor`, if a mask has chosen its rows (`tf.boolean_mask`): then they are no batch."""
        op = self.op(tensor)
        if op is None or far == 0 or self.kind(tensor) is not Term.ROWS:
            return None
        if op.type == "GatherV2":
            indices = self.op(op.inputs[1])
            while indices is not None and indices.type in ("Squeeze", "Cast", "Reshape"):
                indices = self.op(indices.inputs[0])
            return tensor if indices is not None and indices.type == "Where" else None
        if op.type not in MATHEMATICS:
            return None
        parts = [self._chosen(part, far - 1) for part in operands(op)]
        return tensor if any(part is not None for part in parts) else None


def _combined(operation: str, kinds: Sequence[Kind]) -> Kind:
    """The kind of what `operation` makes of tensors of these kinds."""
    parts = next((kind for kind in kinds if isinstance(kind, LossParts)), None)
    if parts is not None or Term.ROWS in kinds:
        return parts or Term.ROWS
    others = list(dict.fromkeys(kind for kind in kinds if kind is not Term.FIXED))
    if not others:
        return Term.FIXED
    if Term.UNKNOWN in others:
        # Both are taken as means, unless what else there is counts otherwise.
        additive = operation in ADDITIVE and not set(others) <= {Term.UNKNOWN, Term.MEAN}
        return Term.MIXED if additive else Term.UNKNOWN
    if others == [Term.COUNT]:
        return Term.COUNT
    (kind, *more), alone = others, Term.FIXED not in kinds
    if operation in ADDITIVE:
        # What is fixed counts by the shares of the samples as well, as means do.
        same = not more and (alone or kind is Term.MEAN)
        return kind if same else Term.MIXED
    if operation == "Mul":
        if not more and not alone:
            return kind
        return Term.SUM if set(others) == {Term.MEAN, Term.COUNT} else Term.MIXED
    if operation in ("RealDiv", "DivNoNan"):
        if not more and kinds[1] is Term.FIXED:
            return kind
        return Term.MEAN if list(kinds) == [Term.SUM, Term.COUNT] else Term.MIXED
    return Term.MIXED
