"""Makes what a loop of the script's own calls in a step once for each replica of this worker.

`TrainState.steps` gives the loop the piece of one replica. What the loop does with it in a
`tf.function`, or in `strategy.run`, is done with the other replicas' pieces as well: they take
turns (turns.py). What a call returns is the first replica's; those of the others are remembered,
for the next call in the same step and for `strategy.reduce`.

What the loop computes from its piece outside of such a call is one replica's alone, and nobody
could compute it for the others: a call that is given that is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.engine.calls_in_turn import Shared
from tfrun.engine.replica import turns_of
from tfrun.engine.script_lines import script_line
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.job.world import may_stay, one_for_good, take_one_for_good, world

# The step that each loop is in, by what belongs to the loop alone.
_open: weakref.WeakKeyDictionary[Any, LoopStep] = weakref.WeakKeyDictionary()
_is_tracing = False  # one of their calls
_took_turns = False  # in some step of this process
_one_each = ""  # why the loop cannot take turns


class _Call:
    """A call of a function with arguments of one structure, as `Turns.run` runs it.

    Args:
      function: the script's.
      structure: of its arguments.
      fixed: its other arguments than tensors, by position among all leaves.
      host_calls: this worker's `CallsInTurn`.
    """

    def __init__(
        self, function: Any, structure: Any, fixed: dict[int, Any], host_calls: Any
    ) -> None:
        def once(tensors: list[tf.Tensor]) -> Any:
            given = iter(tensors)
            leaves = [
                fixed[place] if place in fixed else next(given)
                for place in range(len(fixed) + len(tensors))
            ]
            args, kwargs = tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)
            return function(*args, **kwargs)

        self._once, self._host_calls = tf.function(once, autograph=False), host_calls
        self._shared = Shared()
        self._traced: dict[tuple[tf.TensorSpec, ...], Any] = {}

    def get_concrete_function(self, tensors: Sequence[tf.Tensor]) -> Any:
        """What is run with such tensors, as of a `tf.function`: one for each shape that they have.

        So the step of a replica does not depend on what others a worker holds.
        """
        global _is_tracing
        specs = tuple(map(tf.TensorSpec.from_tensor, tensors))
        if specs not in self._traced:
            _is_tracing = True
            try:
                with self._host_calls.tracing(self._shared):
                    self._traced[specs] = self._once.get_concrete_function(list(specs))
            finally:
                _is_tracing = False
        return self._traced[specs]


@dataclass(frozen=True)
class _Made:
    """A call of a step: `sources` say which tensors it is given, by who has made them."""

    call: _Call
    sources: Sequence[tuple[int, int] | tf.Tensor]


class Calls:
    """The calls of one loop, each of which is traced once.

    Args:
      host_calls: this worker's `CallsInTurn`.

    Attributes:
      turns: the replicas of this worker.
      begin: is called before a step's first call.
      again: is given the error of a call that failed; returns the pieces of the step that is made
        again, None where it is not.
    """

    def __init__(self, host_calls: Any) -> None:
        self.turns, self._host_calls = host_calls.turns, host_calls
        self.begin: Callable[[], None] = lambda: None
        self.again: Callable[[Exception], Any] = lambda error: None
        self._known: dict[Any, _Call] = {}

    def step_begins(self, pieces: Sequence[Any]) -> Any:
        """Returns what the loop is given: the first replica's piece of a batch.

        Args:
          pieces: of each replica here.
        """
        global _took_turns
        _open[self] = LoopStep(self, pieces)
        _took_turns = _took_turns or not self.turns.one_each
        return pieces[0]

    def step_ended(self) -> None:
        """What the loop makes from now on is no part of its newest step."""
        _open.pop(self, None)

    def of(self, function: Any, known_as: Any, structure: Any, fixed: dict[int, Any]) -> _Call:
        """The call of a function; arguments as of `_Call`, and of `made`."""
        kinds = [(at, type(one), one if _is_plain(one) else id(one)) for at, one in fixed.items()]
        key = id(known_as or function), repr(structure), tuple(kinds)
        if key not in self._known:
            self._known[key] = _Call(function, structure, fixed, self._host_calls)
        return self._known[key]


class LoopStep:
    """A step of the loop, from the moment in which it is given its piece.

    Args:
      calls: those of the loop.
      pieces: see `Calls.step_begins`.
    """

    def __init__(self, calls: Calls, pieces: Sequence[Any]) -> None:
        self._calls, self._made = calls, list[_Made]()
        # What was given, and what each call has returned: all tensors of it, for each replica.
        self._columns: list[list[list[Any]]] = []
        self._held = list[Any]()  # what the loop holds: who has the same id has to be the same
        self._source: dict[int, tuple[int, int]] = {}  # where the first one's tensor stands there
        self._note(pieces)
        self._newest = max(
            (one._id for c in self._columns[0] for one in c if _is_tensor(one)), default=0
        )

    def parts(self, value: Any) -> list[tf.Tensor] | None:
        """What each replica here has in place of a tensor; None where nobody knows."""
        found = self._source.get(id(value))
        return None if found is None else self._columns[found[0]][found[1]]

    def takes(self, given: Any) -> bool:
        """Whether what a call is given has to do with this step's batch."""
        leaves = tf.nest.flatten(given, expand_composites=True)
        return any(id(leaf) in self._source for leaf in leaves)

    def make(self, function: Any, args: Any, kwargs: Any, known_as: Any) -> list[Any] | None:
        """Makes a call for each replica here, see `made`."""
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        structure = tf.nest.map_structure(_spec_of, (args, kwargs))
        structure = tf.nest.map_structure(_place_of, structure)
        fixed: dict[int, Any] = {}
        sources: list[tuple[int, int] | tf.Tensor] = []
        for place, leaf in enumerate(leaves):
            found = self._source.get(id(leaf))
            if found is None and self._may_be_computed(leaf) and not self._is_one_for_good():
                raise _computed_outside("a tensor", "a step")
            if found is None and self._may_be_computed(leaf):
                return None
            if found is None and not _is_tensor(leaf):
                fixed[place] = leaf
            else:
                sources.append(found or leaf)
        call = self._calls.of(function, known_as, structure, fixed)
        if not self._made:
            self._calls.begin()
        self._made.append(_Made(call, sources))
        while True:
            try:
                return [self._make(self._made[-1])]
            except Exception as error:
                pieces = self._calls.again(error)
                if pieces is None:
                    raise
                self._begin_anew(pieces)

    def _make(self, one: _Made) -> Any:
        turns = self._calls.turns
        given = [
            [s if _is_tensor(s) else self._columns[s[0]][s[1]][place] for s in one.sources]
            for place in range(len(turns.held))
        ]
        result = turns.run(one.call, given)
        self._note(turns.returned)
        return result

    def _begin_anew(self, pieces: Sequence[Any]) -> None:
        """Makes the calls before the newest one again, for the replicas that are here now."""
        first, self._columns = self._columns, []
        self._note(pieces)
        for one in self._made[:-1]:
            self._make(one)
        # The loop holds the tensors that it was given at first.
        for at, columns in enumerate(first):
            for place, column in enumerate(columns):
                if _is_tensor(column[0]):
                    self._source[id(column[0])] = at, place
                    self._held.append(column[0])

    def _note(self, of_each: Sequence[Any]) -> None:
        flat = [tf.nest.flatten(one, expand_composites=True) for one in of_each]
        columns = [list(column) for column in zip(*flat, strict=True)]
        self._columns.append(columns)
        for place, column in enumerate(columns):
            if _is_tensor(column[0]):
                self._source[id(column[0])] = len(self._columns) - 1, place

    def _may_be_computed(self, leaf: Any) -> bool:
        """Whether a leaf may come from the piece that the loop was given, past any call."""
        if _is_tensor(leaf):
            return leaf._id > self._newest
        return isinstance(leaf, np.ndarray) and leaf.ndim > 0

    def _is_one_for_good(self) -> bool:
        """Where each worker has one replica, what it computes from its piece is of use to it."""
        if not self._calls.turns.one_each:
            return False
        note_one_each("it computes something from its batch outside of a tf.function")
        return True


def of(strategy: Any | None) -> Calls | None:
    """The calls of a loop whose workers take turns, or may come to; None where they never do.

    Args:
      strategy: that of the loop.
    """
    here = world()
    turns = None if strategy is None else turns_of(strategy)
    if strategy is None or turns is None or settings().rehearses:
        return None
    others_come = here.replicas != here.size or may_stay()
    return Calls(strategy.extended._host_calls) if others_come else None


def note_one_each(why: str) -> bool:
    """Notes that the script's loop needs one replica on each worker; whether that is all right."""
    global _one_each
    _one_each = _one_each or why
    return take_one_for_good(why)


def note_distributed() -> None:
    """Notes that the script has divided some data among the workers itself."""
    global _one_each
    _one_each = _one_each or "the script has distributed data itself"


def why_one_each() -> str:
    """Why the script's loop needs one replica on each worker; "" where it does not."""
    return _one_each


def is_in_step() -> bool:
    """Whether some loop that takes turns is in a step."""
    return bool(_open)


def is_tracing() -> bool:
    """Whether a call of such a loop is being traced."""
    return _is_tracing


@tf.autograph.experimental.do_not_convert
def made(function: Any, args: Any, kwargs: Any, known_as: Any = None) -> list[Any] | None:
    """Makes a call for each replica here, where it is one of a loop that takes turns.

    Args:
      function: what is called.
      args, kwargs: with these.
      known_as: what tells it from others; None for itself.

    Returns:
      What the first one's returns, as the only element; None where it is no such call.
    """
    if not tf.executing_eagerly() or one_for_good():
        return None
    for step in tuple(_open.values()):
        if step.takes((args, kwargs)):
            return step.make(function, args, kwargs, known_as)
    return None


@tf.autograph.experimental.do_not_convert
def parts_to_reduce(turns: Any, value: Any, axis: Any) -> list[tf.Tensor] | None:
    """What each replica here has of a value that the script reduces, outside of a call.

    Args:
      turns: the replicas of this worker; None where each is one for good.
      value, axis: as of `strategy.reduce`.

    Returns:
      None where the script does so in no loop that takes turns.

    Raises:
      TfrunError: TFRUN-518 where the others' are not known.
    """
    if turns is None or not (_took_turns or _open) or not tf.executing_eagerly():
        return None
    for step in _open.values():
        if axis is None and (found := step.parts(value)) is not None:
            return found
    if not _is_tensor(value):
        return None
    if turns.one_each:
        note_one_each("it reduces something that it has computed outside of a tf.function")
    else:
        raise _computed_outside("a value", "strategy.reduce")
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
    return tf.cast(found, parts[0].dtype)


def _computed_outside(what: str, whom: str) -> TfrunError:
    return TfrunError(
        "TFRUN-518",
        f"{whom} is given {what} that the loop has made of one replica's part of the batch, or may "
        "have",
        where=script_line(),
        expected="what a step computes from its batch in one tf.function",
        fix="Compute it in the tf.function that calls strategy.run; pass what does not depend on "
        "the batch as a Python number, or make it before the loop; or leave out --replicas",
    )


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and not isinstance(leaf, tf.Variable)


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
