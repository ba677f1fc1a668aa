"""Makes what a loop of the script's own calls in a step once for each replica of this worker.

`TrainState.steps` gives the loop the piece of one replica. What the loop does with it in a
`tf.function`, or in `strategy.run`, is done with the other replicas' pieces as well: they take
turns (turns.py). What a call returns is the first replica's; those of the others are remembered,
for the next call in the same step and for `strategy.reduce`.

What the loop computes from its piece outside of such a call is one replica's alone, and nobody
could compute it for the others: a call that is given that is refused.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.engine import loop_refusals
from tfrun.engine.replica import turns_of
from tfrun.job import holding
from tfrun.job.settings import settings
from tfrun.job.world import world

# The step that each loop is in, by what belongs to the loop alone.
open_steps: weakref.WeakKeyDictionary[Any, LoopStep] = weakref.WeakKeyDictionary()
_is_tracing = False  # one of their calls
_took_turns = False  # in some step of this process


class _Call:
    """A call of a function with arguments of one structure, as `Turns.run` runs it.

    Args:
      function: the script's.
      structure: of its arguments, with a specification for each tensor.
      fixed: its other arguments, by position among all leaves.
      specs: what it is traced with: of each tensor that it is called with.
    """

    def __init__(
        self, function: Any, structure: Any, fixed: dict[int, Any], specs: Sequence[tf.TensorSpec]
    ) -> None:
        def once(tensors: list[tf.Tensor]) -> Any:
            given = iter(tensors)
            leaves = [
                fixed[place] if place in fixed else next(given)
                for place in range(len(fixed) + len(tensors))
            ]
            args, kwargs = tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)
            return function(*args, **kwargs)

        self._once, self._specs = tf.function(once, autograph=False), list(specs)
        self._traced: Any = None

    def get_concrete_function(self, _: Any) -> Any:
        """What is run, as of a `tf.function`."""
        global _is_tracing
        if self._traced is None:
            _is_tracing = True
            try:
                self._traced = self._once.get_concrete_function(self._specs)
            finally:
                _is_tracing = False
        return self._traced


class Calls:
    """The calls of one loop, each of which is traced once.

    Args:
      turns: the replicas of this worker.
    """

    def __init__(self, turns: Any) -> None:
        self.turns = turns
        self._known: dict[Any, _Call] = {}

    def step_begins(self, pieces: Sequence[Any], spec: Any) -> Any:
        """Returns what the loop is given: the first replica's piece of a batch.

        Args:
          pieces: of each replica here.
          spec: of a piece.
        """
        global _took_turns
        if not open_steps:
            loop_refusals.steps_begin()
        open_steps[self], _took_turns = LoopStep(self, pieces, spec), True
        return pieces[0]

    def step_done(self) -> None:
        """A training step is over, and replicas may move before the next one."""
        step, balance = open_steps.get(self), self.turns.balance
        if balance is not None:
            self.turns.seconds = step.seconds if step else None
            balance.step_done()
        moves = holding.moves
        holding.between_steps()
        if moves != holding.moves:
            open_steps.clear()  # they know what other replicas had
            loop_refusals.steps_end()

    def step_ended(self) -> None:
        """What the loop makes from now on is no part of its newest step."""
        if open_steps.pop(self, None) and not open_steps:
            loop_refusals.steps_end()

    def of(
        self,
        function: Any,
        known_as: Any,
        structure: Any,
        fixed: dict[int, Any],
        specs: Sequence[tf.TensorSpec],
    ) -> _Call:
        """The call of a function; arguments as of `_Call`, and of `made`."""
        kinds = [(at, type(one), one if _is_plain(one) else id(one)) for at, one in fixed.items()]
        key = (id(known_as or function), repr(structure), tuple(kinds), tuple(specs))
        if key not in self._known:
            self._known[key] = _Call(function, structure, fixed, specs)
        return self._known[key]


class LoopStep:
    """A step of the loop, from the moment in which it is given its piece.

    Attributes:
      seconds: that its calls took, as `Turns.seconds`; None where one was traced, or there is none.

    Args:
      calls: those of the loop.
      pieces, spec: see `Calls.step_begins`.
    """

    def __init__(self, calls: Calls, pieces: Sequence[Any], spec: Any) -> None:
        self._calls = weakref.proxy(calls)  # else none of them would ever go
        # By the id of the first replica's tensor: what each has in its place, and how it is traced.
        self._of_each: dict[int, tuple[list[tf.Tensor], tf.TensorSpec]] = {}
        self._note(pieces, tf.nest.flatten(spec, expand_composites=True))
        self._took: list[float | None] = []

    @property
    def seconds(self) -> float | None:
        took = [one for one in self._took if one is not None]
        return sum(took) if took and len(took) == len(self._took) else None

    def parts(self, value: Any) -> list[tf.Tensor] | None:
        """What each replica here has in place of a tensor; None where nobody knows."""
        found = self._of_each.get(id(value))
        return None if found is None else found[0]

    def note_alike(self, value: tf.Tensor) -> None:
        """Remembers what is the same for all replicas."""
        count = len(self._calls.turns.held)
        self._of_each[id(value)] = [value] * count, tf.TensorSpec.from_tensor(value)

    def check_alike(self, leaf: Any) -> None:
        """Refuses what a metric is given that other replicas may have something else for.

        Raises:
          TfrunError: TFRUN-518.
        """
        several = not self._calls.turns.one_each
        if several and loop_refusals.is_tensor(leaf) and loop_refusals.came_up_in_steps(leaf):
            raise loop_refusals.given_to_metric("a tensor")
        if several and isinstance(leaf, np.ndarray) and leaf.ndim > 0:
            raise loop_refusals.given_to_metric("an array")
        if several and loop_refusals.is_number(leaf) and self._differs(float(leaf)):
            raise loop_refusals.given_to_metric("a number")

    def _differs(self, number: float) -> bool:
        """Whether it is what the first replica has, and another one has something else."""
        for parts, _ in self._of_each.values():
            if parts[0].shape.rank == 0 and parts[0].dtype.is_floating:
                first, *others = (float(part) for part in parts)
                if number == first and any(other != first for other in others):
                    return True
        return False

    def takes(self, given: Any) -> bool:
        """Whether what a call is given has to do with this step's batch."""
        leaves = tf.nest.flatten(given, expand_composites=True)
        return any(id(leaf) in self._of_each for leaf in leaves)

    def make(self, function: Any, args: Any, kwargs: Any, known_as: Any) -> Any:
        """Makes a call for each replica here; returns what the first one's returns."""
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        structure = tf.nest.map_structure(_spec_of, (args, kwargs))
        structure = tf.nest.map_structure(_place_of, structure)
        count = len(self._calls.turns.held)
        fixed: dict[int, Any] = {}
        each: list[list[tf.Tensor]] = [[] for _ in range(count)]
        specs: list[tf.TensorSpec] = []
        for place, leaf in enumerate(leaves):
            found = self._of_each.get(id(leaf))
            if found is None and not loop_refusals.is_tensor(leaf):
                self._check_fixed(leaf)
                fixed[place] = leaf
                continue
            if found is None:
                self._check_older(leaf)
                found = [leaf] * count, tf.TensorSpec.from_tensor(leaf)
            parts, spec = found
            specs.append(spec)
            for mine, part in zip(each, parts, strict=True):
                mine.append(part)
        call = self._calls.of(function, known_as, structure, fixed, specs)
        turns = self._calls.turns
        result = turns.run(call, each)
        self._took.append(turns.seconds)
        traced = call.get_concrete_function(None).structured_outputs
        kinds = tf.nest.flatten(traced, expand_composites=True)
        self._note(turns.returned, [_spec_of_output(kind) for kind in kinds])
        return result

    def _note(self, of_each: Sequence[Any], specs: Sequence[Any]) -> None:
        columns = zip(
            *(tf.nest.flatten(one, expand_composites=True) for one in of_each), strict=True
        )
        for column, spec in zip(columns, specs, strict=True):
            if loop_refusals.is_tensor(column[0]):
                self._of_each[id(column[0])] = list(column), spec

    def _check_older(self, tensor: Any) -> None:
        """Refuses a tensor that has come up in a step: it may be computed from its piece.

        Raises:
          TfrunError: TFRUN-518.
        """
        if not self._calls.turns.one_each and loop_refusals.came_up_in_steps(tensor):
            raise loop_refusals.computed_outside("a tensor", "a step")

    def _check_fixed(self, leaf: Any) -> None:
        several = not self._calls.turns.one_each
        if several and isinstance(leaf, np.ndarray) and leaf.ndim > 0:
            raise loop_refusals.computed_outside("an array", "a step")


def of(strategy: Any | None) -> Calls | None:
    """The calls of a loop whose workers take turns; None where each computes one replica.

    Where as many workers as replicas are asked for they are called likewise: TensorFlow traces a
    step for each size of a piece otherwise, and rounds differently in some.

    Args:
      strategy: that of the loop.
    """
    turns = None if strategy is None else turns_of(strategy)
    return Calls(turns) if turns and take_turns() and not settings().rehearses else None


def take_turns() -> bool:
    """Whether loops of this job are made for each replica of a worker, as far as it is its own."""
    here = world()
    return here.replicas != here.size or settings().replicas > 1


def is_in_step() -> bool:
    """Whether some loop that takes turns is in a step."""
    return bool(open_steps)


def is_tracing() -> bool:
    """Whether a call of such a loop is being traced."""
    return _is_tracing


def made(function: Any, args: Any, kwargs: Any, known_as: Any = None) -> list[Any] | None:
    """Makes a call for each replica here, where it is one of a loop that takes turns.

    Args:
      function: what is called.
      args: with these.
      kwargs: and these.
      known_as: what tells it from others; None for itself.

    Returns:
      What the first one's returns, as the only element; None where it is no such call.
    """
    if not tf.executing_eagerly():
        return None
    for step in tuple(open_steps.values()):
        if step.takes((args, kwargs)):
            return [step.make(function, args, kwargs, known_as)]
    return None


def updated(metric: Any, update: Any, args: Any, kwargs: Any) -> bool:
    """Has a metric that the loop's body updates count what each replica here has.

    Args:
      metric: Keras's, or the script's.
      update: its `update_state`, of the metric as well.
      args: with which that is called.
      kwargs: likewise.

    Returns:
      False where nothing is counted: it is no such call, or the same for all replicas.

    Raises:
      TfrunError: TFRUN-518 where nobody knows what the other replicas have.
    """
    if not tf.executing_eagerly():
        return False
    given = tf.nest.flatten((args, kwargs), expand_composites=True)
    for step in tuple(open_steps.values()):
        if step.takes(given):
            strategy = metric.variables[0]._value.distribute_strategy
            once = functools.partial(_update_on, strategy, update, metric)
            step.make(once, args, kwargs, metric)
            return True
    for leaf in given:
        for step in open_steps.values():
            step.check_alike(leaf)
    return False


@tf.autograph.experimental.do_not_convert
def parts_to_reduce(turns: Any, value: Any, axis: Any) -> list[tf.Tensor] | None:
    """What each replica here has of a value that the script reduces, outside of a call.

    Args:
      turns: the replicas of this worker; None where each is one for good.
      value: what is reduced.
      axis: as of `strategy.reduce`.

    Returns:
      None where the script does so in no loop that takes turns.

    Raises:
      TfrunError: TFRUN-518 where the others' are not known.
    """
    if turns is None or not _took_turns or not tf.executing_eagerly():
        return None
    for step in open_steps.values():
        found = step.parts(value) if axis is None else None
        if found is not None:
            return found
    if not turns.one_each and loop_refusals.is_tensor(value):
        raise loop_refusals.computed_outside("a value", "strategy.reduce")
    return None


def reduced(calls: Any, reduce_op: Any, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum or the mean over all replicas of the job.

    Args:
      calls: this worker's `CallsInTurn`.
      reduce_op: as of `strategy.reduce`.
      parts: what each replica here has.
    """
    is_mean = "MEAN" in str(reduce_op).upper()
    found = calls.mean_of_replicas(parts) if is_mean else calls.sum_of_replicas(parts)
    found = tf.cast(found, parts[0].dtype)
    for step in open_steps.values():
        step.note_alike(found)
    return found


def _update_on(strategy: Any, update: Any, metric: Any, *args: Any, **kwargs: Any) -> None:
    def on_replica(*args: Any, **kwargs: Any) -> None:
        update(metric, *args, **kwargs)

    strategy.run(on_replica, args, kwargs)


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | str | bytes | np.generic | type(None))


def _spec_of(leaf: Any) -> Any:
    """What says how a leaf is put together again, of whatever size."""
    if isinstance(leaf, tf.RaggedTensor):
        shape, splits = [None] * (leaf.shape.rank or 0), leaf.row_splits.dtype
        return tf.RaggedTensorSpec(shape, leaf.dtype, leaf.ragged_rank, splits)
    if isinstance(leaf, tf.SparseTensor):
        return tf.SparseTensorSpec([None] * (leaf.shape.rank or 0), leaf.dtype)
    if isinstance(leaf, tf.__internal__.CompositeTensor) and not isinstance(leaf, tf.Variable):
        return tf.type_spec_from_value(leaf)
    return leaf


def _place_of(leaf: Any) -> Any:
    return leaf if isinstance(leaf, tf.TypeSpec) else None


def _spec_of_output(kind: Any) -> Any:
    return tf.TensorSpec(kind.shape, kind.dtype) if isinstance(kind, tf.Tensor) else None
