"""One replica's losses in a step of Keras, as parts of one worker's loss.

A `train_step` that a script writes for `fit` is written for one machine: what it computes from its
samples it takes for the loss of all of them, and N such gradients added up are N times too large.
So the gradient is taken of what the loss is made of, each term with the weight that makes all
replicas' terms one worker's (loss_terms.py finds the terms). Where a term is a function of means
and sums, such as a quotient, these are added up over the replicas first: a few numbers a step, and
only for such losses.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from keras import tree

from tfrun.engine import loss_reader, replica, step_clock
from tfrun.engine.loss_reader import ADDITIVE, EagerRecorder, LossReader, again, operands
from tfrun.engine.loss_terms import Kind, LossParts, MeanOver, Term, Walk
from tfrun.engine.script_lines import line_of

_log = logging.getLogger("tfrun")
_warned: set[str] = set()
_AS_IT_IS = (Term.SUM, Term.ROWS, Term.PAIRS, Term.COUNT)


@dataclass(frozen=True, kw_only=True)
class Formula:
    """How a loss is put together.

    Attributes:
      target: the loss.
      parts: tensors of one kind each.
      linear: it is a sum of them.
    """

    target: Any
    parts: Sequence[tuple[Any, Kind]]
    linear: bool


class Losses:
    """Knows the losses of one replica's step.

    Args:
      run: the step's.
      model: whose step it is.
      trains: it is a training step.
      alone: the step is written for one machine: what it sees are its own losses, and gradients
        are weighed. Else losses are weighed where Keras computes them.
      data: what the step was called with.

    Attributes:
      model, trains, alone: see above.
      walk: finds what the step's tensors are.
      batch: what the metrics of single outputs count by while Keras computes those, by `id`.
      count: has the run count its samples, see there.
      states_replicas: the script asks in this step how many replicas there are: it weighs its
        losses itself.
      is_unseen: what is computed now is none of the script's.
      keeps_own: the step has assigned what is this replica's own to a variable of this worker.
      has_told: `tell` has been called.
      ones: this replica's parts of what is a one for each batch on one worker, by `id`.
      parts: variables that hold this replica's means until the step's end (batch_statistics.py).
    """

    def __init__(
        self, run: replica.ReplicaRun, model: Any, data: Any, *, trains: bool, alone: bool
    ) -> None:
        self.model, self.trains = model, trains
        self._shares: dict[tf.DType, Any] = {}
        self.alone = alone
        self.states_replicas = False
        self.keeps_own = self.is_unseen = self.has_told = False
        self.batch: dict[int, Any] = {}
        self.ones: set[int] = set()
        self.parts: list[Any] = []
        self.count: Callable[[], None] = lambda: None
        self._run = run
        self._marked: dict[int, tuple[Any, Kind]] = {}
        self._whole: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._unweighed: dict[int, tuple[Any, Any]] = {}
        self._recorder = EagerRecorder() if tf.executing_eagerly() else None
        self.walk = Walk(LossReader(self._recorder), *loss_reader.samples_of(data), self._marked)

    @property
    def is_first_here(self) -> bool:
        """Whether it is that of this worker's first replica."""
        return self._run.is_first_here

    def count_once(self) -> None:
        """Has the samples counted, where a test step turns out to need their number."""
        if not self.trains and self._run.samples is None and self.can_sum():
            with self.unseen(), self._own_additions():
                self.count()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Knows what the block computes."""
        with self._recorder.records() if self._recorder else contextlib.nullcontext():
            yield

    def mark(self, tensor: Any, kind: Kind) -> None:
        """Says what a tensor is, so that nobody has to find out."""
        self._marked[id(tensor)] = (tensor, kind)

    def kind(self, tensor: Any) -> Kind:
        """What a tensor is."""
        return self.walk.kind(tensor)

    def is_marked(self, tensor: Any) -> bool:
        """Whether somebody has said what a tensor is."""
        return id(tensor) in self._marked

    def is_gradient(self, tensor: Any) -> bool:
        """Whether a tape has given `tensor`."""
        return id(tensor) in self._marked or id(tensor) in self._unweighed

    def op(self, tensor: Any) -> Any:
        """Who computed a tensor, an `Op`; None for what was there before."""
        return self.walk.op(tensor)

    def share(self, dtype: tf.DType) -> Any:
        """This replica's share of the samples: a number, or a scalar tensor of `dtype`."""
        run = self._run
        if run.samples is None:
            return tf.constant(1.0 / run.context.num_replicas_in_sync, dtype)
        exact = tf.float64 if dtype == tf.float64 else tf.float32
        if not self.can_sum():
            return run.share(exact)
        if exact not in self._shares:
            self._shares[exact] = (
                step_clock.share_of(run, [], exact) if self.trains else run.share(exact)
            )
        return tf.cast(self._shares[exact], dtype)

    def gradient(self, differentiate: Any, targets: Sequence[Any], above: Sequence[Any]) -> Any:
        """The gradient of this replica's part of one worker's loss.

        Args:
          differentiate: called with targets, and with gradients for them; gives the gradient.
          targets: losses that the step has computed, which are added up.
          above: the gradient for each target, or None.
        """
        with self.unseen():
            pairs: list[tuple[Any, Any]] = []
            for target, slope in zip(targets, above, strict=True):
                pairs += self._weighed_parts(self._formula(target), slope)
            return differentiate([part for part, _ in pairs], [slope for _, slope in pairs])

    def mark_gradients(self, gradients: Any) -> Any:
        """`gradients`, known from now on as such that the replicas' sum is one worker's."""
        for gradient in tree.flatten(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                self.mark(gradient.values, Term.ROWS)
            elif tf.is_tensor(gradient):
                self.mark(gradient, Term.SUM)
        return gradients

    def sums(
        self, parts: Sequence[tuple[Any, Kind]], *, counts_all: bool = False
    ) -> dict[int, Any]:
        """One worker's value of each part, by its `id`; all replicas must call this.

        Args:
          parts: tensors, and what each is.
          counts_all: also those of a replica without a sample in this step.
        """
        new = [(part, kind) for part, kind in parts if (id(part), "value") not in self._whole]
        exact = [part if part.dtype.is_floating else tf.cast(part, tf.float64) for part, _ in new]
        weighed = [
            value * tf.cast(self._weight(part, kind), value.dtype)
            for (part, kind), value in zip(new, exact, strict=True)
        ]
        if not counts_all:
            weighed = [
                value if kind is Term.DRAWN else self._counted(value)
                for value, (_, kind) in zip(weighed, new, strict=True)
            ]
        if new:
            with self._own_additions():
                totals = self._run.context.all_reduce(tf.distribute.ReduceOp.SUM, weighed)
            for (part, _), total in zip(new, totals, strict=True):
                self._whole[(id(part), "value")] = (part, tf.cast(total, part.dtype))
        return {id(part): self._whole[(id(part), "value")][1] for part, _ in parts}

    def _weighed_parts(self, formula: Formula, above: Any) -> list[tuple[Any, Any]]:
        target, weight = formula.target, self._one_weight(formula)
        if weight is not None:
            above = tf.ones_like(target) if above is None else above
            return [(target, above * tf.cast(weight, target.dtype))]
        _, slopes = self._slopes(formula, above)
        return [
            (part, slope * tf.cast(self._weight(part, kind), part.dtype))
            for (part, kind), slope in zip(formula.parts, slopes, strict=True)
            if slope is not None
        ]

    def remember_unweighed(self, targets: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Has gradients weighed when an optimizer gets them: another tape is still watching."""
        weight = self.weight_of(targets)
        for gradient in gradients:
            if gradient is not None:
                self._unweighed[id(gradient)] = (gradient, weight)

    def weight_of(self, targets: Sequence[Any]) -> Any:
        """The weight that all these losses have, as far as there is one."""
        with self.unseen():
            weights = [self._one_weight(self._formula(target)) for target in targets]
            weight = weights[0]
            if weight is None or any(other is not weight for other in weights):
                self.tell(targets[0])
                weight = self.share(targets[0].dtype)
        return weight

    def weighed(self, gradient: Any) -> Any:
        """`gradient`, as an optimizer has to have it."""
        found = self._unweighed.get(id(gradient))
        return gradient if found is None else gradient * tf.cast(found[1], gradient.dtype)

    def whole(self, value: Any) -> Any:
        """What is one worker's `value` when the replicas' are added up; its gradient too."""
        with self.unseen():
            formula = self._formula(value)
            weight = self._one_weight(formula)
            if weight is not None:
                return self._counted(value * tf.cast(weight, value.dtype))
            total, slopes = self._slopes(formula, None)
            result = tf.zeros_like(value)
            if not formula.linear:
                result = tf.stop_gradient(total) * self.share(value.dtype)
            for (part, kind), slope in zip(formula.parts, slopes, strict=True):
                if slope is not None:
                    change = part if formula.linear else part - tf.stop_gradient(part)
                    weight = tf.cast(self._weight(part, kind), part.dtype)
                    slope = tf.stop_gradient(slope)
                    result += tf.cast(tf.reduce_sum(slope * weight * change), value.dtype)
            return self._counted(result)

    def is_mean(self, value: Any) -> bool:
        """Whether the mean over the replicas, by their samples, is one worker's `value`."""
        kinds = (Term.MEAN, Term.FIXED, Term.UNKNOWN)
        with self.unseen():
            return not self.states_replicas and self.kind(value) in kinds

    def is_weighed(self, value: Any) -> bool:
        """Whether `value` is such as the step adds up already."""
        with self.unseen():
            kind = self.kind(value)
            return kind is Term.PART or (self.trains and kind in _AS_IT_IS)

    def is_fixed(self, value: Any) -> bool:
        """Whether the step's samples have no part in `value`."""
        with self.unseen():
            return self.kind(value) is Term.FIXED

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """Records nothing of what the block computes, and takes its gradients as they are."""
        before, self.is_unseen = self.is_unseen, True
        try:
            pauses = self._recorder.pauses() if self._recorder and not before else None
            with pauses or contextlib.nullcontext():
                yield
        finally:
            self.is_unseen = before

    @contextlib.contextmanager
    def _own_additions(self) -> Iterator[None]:
        """Keeps what this replica's layers have given to `add_loss`.

        Replicas of one process take turns at each sum, and the layers are the same objects.
        """
        if len(self._run.context.strategy.extended.worker_devices) == 1:
            yield
            return
        kept = [(layer._losses, [*layer._losses]) for layer in self.model._flatten_layers()]
        yield
        for held, mine in kept:
            held[:] = mine

    def _counted(self, value: Any) -> Any:
        """`value`, or zero on a replica without samples, whose means are no numbers."""
        run = self._run
        return (
            value if run.samples is None else tf.where(run.samples > 0, value, tf.zeros_like(value))
        )

    def _formula(self, target: Any) -> Formula:
        parts: dict[int, tuple[Any, Kind]] = {}
        linear = self._take_apart(target, parts)
        formula = Formula(target=target, parts=list(parts.values()), linear=linear)
        kinds = [kind for _, kind in formula.parts]
        if {Term.UNKNOWN, Term.PAIRS} & {*kinds} or (not linear and not self.can_sum()):
            self.tell(target)
            if not linear:
                return Formula(target=target, parts=[(target, Term.UNKNOWN)], linear=True)
        return formula

    def _take_apart(self, tensor: Any, parts: dict[int, tuple[Any, Kind]]) -> bool:
        """Adds the parts of `tensor`; whether it is a sum of them."""
        kind = self.kind(tensor)
        op = self.walk.op(tensor)
        if kind is not Term.MIXED or op is None:
            parts[id(tensor)] = (tensor, kind)
            return True
        linear = [self._take_apart(operand, parts) for operand in operands(op)]
        return op.type in ADDITIVE and all(linear)

    def _one_weight(self, formula: Formula) -> Any:
        """The weight that all parts of a sum have; None where there are several."""
        kinds = {kind for _, kind in formula.parts}
        if formula.linear and kinds <= {*_AS_IT_IS}:
            return 1.0
        if formula.linear and kinds <= {Term.MEAN, Term.FIXED, Term.UNKNOWN}:
            return self._weight(*formula.parts[0])
        if len(formula.parts) == 1 and formula.linear:
            return self._weight(*formula.parts[0])
        return None

    def _weight(self, part: Any, kind: Kind) -> Any:
        if kind in _AS_IT_IS:
            return 1.0
        if kind is Term.DRAWN:  # the first replica draws what one worker does
            return tf.cast(tf.equal(self._run.number, 0), tf.float32)
        dtype = part.dtype if part.dtype.is_floating else tf.float32
        mean = kind.mean if isinstance(kind, LossParts) else kind
        if isinstance(mean, MeanOver) and self.can_sum():
            count = tf.cast(mean.count(), dtype if dtype.size > 4 else tf.float32)
            return tf.math.divide_no_nan(count, self._summed(part, count, "count"))
        share = self.share(dtype)
        if kind is Term.PART or (self.states_replicas and kind is Term.MEAN):
            share *= self._run.context.num_replicas_in_sync  # which it has been divided by
        return share

    def _slopes(self, formula: Formula, above: Any) -> tuple[Any, list[Any]]:
        """The loss of all replicas' parts, and its gradients by them.

        Where it is a sum the parts' values are no matter: this replica's are taken.
        """
        values = {}
        for part, kind in formula.parts:
            value = part
            if not formula.linear and kind is not Term.FIXED:
                weight = tf.cast(self._weight(part, kind), part.dtype)
                value = self._summed(part, self._counted(part * weight), "value")
            values[id(part)] = tf.identity(value)
        known = [values[id(part)] for part, _ in formula.parts]
        with tf.GradientTape() as tape:
            numbers = [value for value in known if value.dtype.is_floating]
            tape.watch(numbers)
            total = self._put_together(formula.target, values)
        slopes = tape.gradient(total, numbers, output_gradients=above)
        found = {id(value): slope for value, slope in zip(numbers, slopes, strict=True)}
        return total, [found.get(id(value)) for value in known]

    def _put_together(self, tensor: Any, values: dict[int, Any]) -> Any:
        if id(tensor) in values:
            return values[id(tensor)]
        op: Any = self.walk.op(tensor)
        return again(op, [self._put_together(operand, values) for operand in operands(op)])

    def can_sum(self) -> bool:
        """Whether all replicas come by here: not within a condition, or a nested function."""
        return tf.compat.v1.get_default_graph() is self._run.graph

    def sum_instead(self, tensor: Any, part: Any, kind: Kind) -> None:
        """One worker's value of `tensor` is from now on the sum of what `part` is."""
        self._whole[(id(tensor), "value")] = (tensor, self.sums([(part, kind)])[id(part)])

    def _summed(self, part: Any, value: Any, what: str) -> Any:
        """The sum over the replicas of `value`, which is `what` of `part`; once a step."""
        key = (id(part), what)
        if key not in self._whole:
            with self._own_additions():
                total = self._run.context.all_reduce(tf.distribute.ReduceOp.SUM, value)
            self._whole[key] = (part, total)
        return self._whole[key][1]

    def tell(self, target: Any) -> None:
        """Says, once for each place, that a loss or metric is no mean or sum over samples."""
        where, self.has_told = line_of(target), True
        if self._run.tells and where not in _warned:
            _warned.add(where)
            _log.warning(
                "what %s computes is neither a mean nor a sum over the samples of its batch. Each "
                "replica computes it from its own part of the batch, and the loss or metric is "
                "the mean of these values, which is not quite what a single worker would compute "
                "(see docs/parity.md).",
                where,
            )
