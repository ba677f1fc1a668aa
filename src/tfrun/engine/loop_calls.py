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
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrun.engine import between_steps, loop_refusals, loop_traces
from tfrun.engine.loop_refusals import is_tensor as _is_tensor
from tfrun.engine.loop_traces import Traces, is_plain, structure_of
from tfrun.engine.replica import may_take_turns
from tfrun.job import holding
from tfrun.job.settings import settings

Parts = Callable[[], Sequence[tf.Tensor]]  # of each replica here

# The step that each loop is in, by what belongs to the loop alone.
open_steps: weakref.WeakKeyDictionary[Any, LoopStep] = weakref.WeakKeyDictionary()
_took_turns = False  # in some step of this process
_ahead: dict[Any, Traces] = {}  # what was traced before a loop has called it


@dataclass(frozen=True)
class _Made:
    """A call of a step: `sources` say which tensors it is given, by who has made them."""

    call: Traces
    sources: Sequence[tuple[int, int] | tf.Tensor]


class Calls:
    """The calls of one loop, each of which is traced once.

    Args:
      host_calls: this worker's `CallsInTurn`.
      known: what has been traced for it.

    Attributes:
      turns: the replicas of this worker.
      begin: is called before a step's first call.
      again: is given the error of a call that failed; returns the pieces of the step that is made
        again, None where it is not.
      goes_on: may enter the next round in the midst of a step's first call. Is given what makes of
        the pieces of the replicas that are here then what each is called with, None where they
        cannot be; returns that, None where the call does not go on.
    """

    def __init__(self, host_calls: Any, known: dict[Any, Traces]) -> None:
        self.turns, self._host_calls, self._known = host_calls.turns, host_calls, known
        self.begin: Callable[[], None] = lambda: None
        self.again: Callable[[Exception], Any] = lambda error: None
        self.goes_on: Callable[[Callable[[Any], Any]], Any] = lambda given: None
        self._again: LoopStep | None = None  # the newest one that was begun again

    def step_begins(self, pieces: Sequence[Any]) -> Any:
        """Returns what the loop is given: the first replica's piece of a batch.

        Args:
          pieces: of each replica here.
        """
        global _took_turns
        if not open_steps:
            loop_refusals.steps_begin()
        if (step := open_steps.get(self)) is not None:
            step.close()
        open_steps[self] = LoopStep(self, pieces)
        between_steps.in_step = True
        _took_turns = _took_turns or not self.turns.one_each
        return pieces[0]

    def step_begins_again(self, step: LoopStep, pieces: Sequence[Any]) -> None:
        """As `step_begins`, of a step of which nothing holds.

        Args:
          step: the newest one, or one of those before it.
          pieces: of each replica here.
        """
        if self._again is not None and self._again is not open_steps.get(self):
            self._again.close()  # else all of the data would be held
        self._again = step
        step.begin_again(pieces)

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
        if (step := open_steps.pop(self, None)) is not None:
            step.close()
            if not open_steps:
                between_steps.in_step = False
                loop_refusals.steps_end()

    def of(self, function: Any, known_as: Any, structure: Any, fixed: dict[int, Any]) -> Traces:
        """The call of a function; arguments as of `Traces`, and of `made`."""
        known_as = function if known_as is None else known_as
        key = _key(known_as, structure, fixed)
        if key not in self._known:
            self._known[key] = _ahead.get(key) or Traces(
                function, known_as, structure, fixed, self._host_calls
            )
        return self._known[key]


class LoopStep:
    """A step of the loop, from the moment in which it is given its piece.

    Attributes:
      seconds: that its calls took, as `Turns.seconds`; None where one was traced, or there is none.

    Args:
      calls: those of the loop.
      pieces: see `Calls.step_begins`.
    """

    def __init__(self, calls: Calls, pieces: Sequence[Any]) -> None:
        self._calls = weakref.proxy(calls)  # else none of them would ever go
        self._made: list[_Made | None] = []  # None: all replicas have the same
        self._took: list[float | None] = []
        self._assigns: dict[int, list[Callable[[], Any]]] = {}  # after so many calls
        # What was given, and what each call has returned: all tensors of it, for each replica.
        self._columns: list[list[list[Any]]] = []
        self._held = list[Any]()  # what the loop holds: who has the same id has to be the same
        self._source: dict[int, tuple[int, int]] = {}  # where the first one's tensor stands there
        self._note(pieces)

    @property
    def seconds(self) -> float | None:
        took = [one for one in self._took if one is not None]
        return sum(took) if took and len(took) == len(self._took) else None

    @property
    def is_one_each(self) -> bool:
        """Whether each worker has one replica, so far."""
        return self._calls.turns.one_each

    def close(self) -> None:
        """Nothing more is made in it, unless it is begun again."""
        self._columns, self._source, self._held = [], {}, []

    def parts(self, value: Any) -> Parts | None:
        """Gives what each replica here has in place of a tensor; None where nobody knows."""
        found = self._source.get(id(value))
        return None if found is None else lambda: self._columns[found[0]][found[1]]

    def note_alike(self, value: tf.Tensor) -> None:
        """Remembers what is the same for all replicas."""
        self._columns.append([[value] * len(self._calls.turns.held)])
        self._made.append(None)
        self._source[id(value)] = len(self._columns) - 1, 0

    def note_assigned(self, assign: Callable[[], Any]) -> None:
        """The script has assigned something, as `assign` does again."""
        if len(self._columns) > len(self._made):  # else it is tfrun, while a call is made
            self._assigns.setdefault(len(self._made), []).append(assign)

    def check_alike(self, leaf: Any) -> None:
        """Refuses what a metric is given that other replicas may have something else for.

        Raises:
          TfrunError: TFRUN-518.
        """
        loop_refusals.check_alike(leaf, itertools.chain.from_iterable(self._columns))

    def takes(self, given: Any) -> bool:
        """Whether what a call is given has to do with this step's batch."""
        leaves = tf.nest.flatten(given, expand_composites=True)
        return any(id(leaf) in self._source for leaf in leaves)

    def make(self, function: Any, args: Any, kwargs: Any, known_as: Any) -> list[Any] | None:
        """Makes a call for each replica here, see `made`."""
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        structure = structure_of((args, kwargs))
        fixed: dict[int, Any] = {}
        sources: list[tuple[int, int] | tf.Tensor] = []
        for place, leaf in enumerate(leaves):
            found = self._source.get(id(leaf))
            if found is None and (what := loop_refusals.may_be_computed(leaf)):
                if not self.is_one_each:
                    raise loop_refusals.computed_outside(what, "a step")
                # Where each worker has one replica, what it computes itself is of use to it.
                loop_refusals.note_one_each("it computes something of its batch by itself")
                return None
            if found is None and not _is_tensor(leaf):
                fixed[place] = leaf
            else:
                sources.append(found or leaf)
        call = self._calls.of(function, known_as, structure, fixed)
        if not self._made:
            self._calls.begin()
        one = _Made(call, sources)
        self._made.append(one)
        if between_steps.newest() is not None:
            return [between_steps.made(lambda: self._make(one), leads_on=True)]
        pieces, first = None, self._columns
        while True:
            try:
                if pieces is not None:
                    self._make_again(pieces, first)
                return [self._make(one)]
            except Exception as error:
                pieces = None if loop_traces.has_failed else self._calls.again(error)
                if pieces is None:
                    raise

    def _make(self, one: _Made) -> Any:
        turns = self._calls.turns
        result = turns.run(one.call, self._given(one), gives=functools.partial(self._goes_on, one))
        self._took.append(turns.seconds)
        self._note(turns.returned)
        return result

    def _given(self, one: _Made) -> list[list[Any]]:
        """What a call is given for each replica here."""
        return [
            [s if _is_tensor(s) else self._columns[s[0]][s[1]][place] for s in one.sources]
            for place in range(len(self._calls.turns.held))
        ]

    def _goes_on(self, one: _Made) -> list[list[Any]] | None:
        """As `_given`, of a call that goes on in another round with the replicas that are there."""
        if self._made[-1] is not one or any(self._made[:-1]):
            return None  # what calls before it have made is not there for others
        return self._calls.goes_on(functools.partial(self._given_anew, one))

    def _given_anew(self, one: _Made, pieces: Sequence[Any]) -> list[list[Any]] | None:
        self._make_again(pieces, self._columns)
        given = self._given(one)
        return given if all(map(one.call.has_traced, given)) else None

    def _make_again(self, pieces: Sequence[Any], first: list[list[list[Any]]]) -> None:
        """Makes the calls before the newest one again, for the replicas that are here now.

        Args:
          pieces: theirs.
          first: the columns as the loop has seen them.
        """
        self.begin_again(pieces)
        for number, one in enumerate(self._made[:-1], start=1):
            if one is None:
                ((same, *_),) = first[number]
                self._columns.append([[same] * len(self._calls.turns.held)])
            else:
                self._make(one)
            for assign in self._assigns.get(number, ()):
                assign()

    def begin_again(self, pieces: Sequence[Any]) -> None:
        """Nothing is made in it yet, with these pieces of the replicas that are here now."""
        # The loop holds the tensors that it was given at first.
        self._held += [c[0] for columns in self._columns for c in columns if _is_tensor(c[0])]
        self._columns = []
        self._note(pieces)

    def _note(self, of_each: Sequence[Any]) -> None:
        flat = [tf.nest.flatten(one, expand_composites=True) for one in of_each]
        columns = [list(column) for column in zip(*flat, strict=True)]
        self._columns.append(columns)
        for place, column in enumerate(columns):
            if _is_tensor(column[0]):
                self._source[id(column[0])] = len(self._columns) - 1, place


def of(strategy: Any | None, known: dict[Any, Traces] | None = None) -> Calls | None:
    """The calls of a loop whose workers take turns, or may come to; None where they never do.

    Args:
      strategy: that of the loop.
      known: what an earlier loop has traced that makes the same calls.
    """
    if strategy is None or settings().rehearses or not may_take_turns(strategy):
        return None
    return Calls(strategy.extended._host_calls, {} if known is None else known)


def ahead(
    strategy: Any, function: Any, known_as: Any, structure: Any, fixed: dict[int, Any]
) -> Traces:
    """A call that a loop is about to make, to be traced before it does; arguments as of `Traces`.

    Raises:
      AttributeError: the strategy has no replicas that take turns.
    """
    made = Traces(function, known_as, structure, fixed, strategy.extended._host_calls)
    return _ahead.setdefault(_key(known_as, structure, fixed), made)


def forget_ahead(call: Traces) -> None:
    """Its trace is of no use: the loop traces it as if nobody had tried."""
    del _ahead[_key(call.known_as, call.structure, call.fixed)]
    loop_traces.has_failed = False


def _key(known_as: Any, structure: Any, fixed: dict[int, Any]) -> Any:
    kinds = [(at, type(one), one if is_plain(one) else id(one)) for at, one in fixed.items()]
    return id(known_as), repr(structure), tuple(kinds)


def is_in_step() -> bool:
    """Whether some loop that takes turns is in a step."""
    return bool(open_steps)


@tf.autograph.experimental.do_not_convert
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
            return step.make(function, args, kwargs, known_as)
    return None


@tf.autograph.experimental.do_not_convert
def parts_to_reduce(turns: Any, value: Any, axis: Any) -> Parts | None:
    """Gives what each replica here has of a value that the script reduces, outside of a call.

    Args:
      turns: the replicas of this worker; None where each is one for good.
      value: what is reduced.
      axis: as of `strategy.reduce`.

    Returns:
      None where the script does so in no loop that takes turns.

    Raises:
      TfrunError: TFRUN-518 where the others' are not known.
    """
    if turns is None or not (_took_turns or open_steps) or not tf.executing_eagerly():
        return None
    for step in open_steps.values():
        found = step.parts(value) if axis is None else None
        if found is not None:
            return found
    if not _is_tensor(value):
        return None
    if not turns.one_each:
        raise loop_refusals.computed_outside("a value", "strategy.reduce")
    loop_refusals.note_one_each("it reduces what it has computed by itself")
    return None


def reduced(calls: Any, reduce_op: Any, parts: Parts) -> tf.Tensor:
    """The sum or the mean over all replicas of the job.

    Args:
      calls: this worker's `CallsInTurn`.
      reduce_op: as of `strategy.reduce`.
      parts: gives what each replica here has.
    """
    is_mean = "MEAN" in str(reduce_op).upper()
    reduce = calls.mean_of_replicas if is_mean else calls.sum_of_replicas
    steps = list(open_steps.values())

    def note_alike(found: tf.Tensor) -> None:
        for step in steps:
            step.note_alike(found)

    found = between_steps.made(lambda: tf.cast(reduce(mine := parts()), mine[0].dtype))
    note_alike(found)
    between_steps.remember(lambda: note_alike(found))
    return found
