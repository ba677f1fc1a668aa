"""What a script has distributed for a loop of its own, where workers take turns for replicas.

In a job whose workers may stay, each has one replica to begin with, and may come to hold others:
such data is read in turns where a `TrainState` has the workers stay, and as TensorFlow does it
everywhere else. Who joins the job reads the data for the first time when others have read it often.
So it has to be the same each time, or the workers cannot stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.keras import division
from tfrun.data.keras.in_turn import Divided, InTurn
from tfrun.data.order import repeatable
from tfrun.engine import between_steps, loop_calls, loop_refusals, replica
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.state.staying_loop import StayingLoop

_IN_FUNCTION = "a tf.function reads data that the script has distributed"
_ANOTHER = "the script has distributed data that is in another order each time it is read"
is_any = False  # in this process


class LoopData(InTurn):
    """Data that is divided among the replicas of the job: a loop is given the first one's piece.

    What it does with that in a `tf.function` is done for the others' as well, see loop_calls.py.

    Args:
      given: what the script has distributed.
      make: distributes it.
      strategy: by which.

    Attributes:
      given: see above.
    """

    def __init__(self, given: Any, make: Callable[[], Any], strategy: Any) -> None:
        global is_any
        self.given, self._make, self._strategy, is_any = given, make, strategy, True
        self._plain: Any = None
        self._plain_of = (-1, -1)  # of which worker of how many
        self._traces: dict[Any, Any] = {}
        if replica.take_turns() and not settings().rehearses:
            _ = self._divided  # what cannot be divided is refused at this line of the script

    @property
    def plain(self) -> Any:
        here = world()
        if self._plain_of != (here.rank, here.size):
            with tf.init_scope():
                self._plain, self._plain_of = self._make(), (here.rank, here.size)
        return self._plain

    @functools.cached_property
    def _divided(self) -> Divided:
        return Divided(self._make, self._strategy)

    def __iter__(self) -> Iterator[Any]:
        if not tf.executing_eagerly():
            return iter(self.in_function())
        if not settings().rehearses and self._is_in_turn():
            calls = loop_calls.of(self._strategy, self._traces)
            assert calls is not None
            return _Steps(self, self.steps(), calls)
        made = iter(self.plain)
        loop_refusals.reading_begins(made)
        return made

    def steps(self) -> division.StepsInTurn:
        """The pieces of each of its steps, from the first one on."""
        return self._divided.steps()

    def reduce(self, initial_state: Any, reduce_func: Any) -> Any:
        """A loop over it in a `tf.function`."""
        return self.in_function().reduce(initial_state, reduce_func)

    def __len__(self) -> int:
        return len(self._shown)

    def __bool__(self) -> bool:
        return True  # as of TensorFlow's, which has no length

    @property
    def cardinality(self) -> Any:
        return self._shown.cardinality

    @property
    def element_spec(self) -> Any:
        return self._shown.element_spec

    @property
    def _shown(self) -> Any:
        in_turn = replica.take_turns() and not settings().rehearses
        return self._divided.made if in_turn else self.plain

    def _is_in_turn(self) -> bool:
        """Whether an iteration that begins now gives the pieces of all replicas here."""
        if self._why_not_stay:
            loop_refusals.note_distributed(self._why_not_stay)
        return replica.take_turns() or (not self._why_not_stay and StayingLoop.is_open())

    @functools.cached_property
    def _why_not_stay(self) -> str:
        """Why nobody else could go on with it; "" where a worker could that comes later."""
        if not division.is_by_batch(self._strategy, self.given):
            return division.OWN_FILES
        return "" if _is_the_same(self.given) else _ANOTHER

    def in_function(self) -> Any:
        """What a `tf.function` reads, which would get one piece and no other.

        Raises:
          UsageError: TFRUN-107.
        """
        if replica.take_turns():
            here = world()
            what = "distributed data that a tf.function iterates over"
            raise errors.one_replica_each(what, here.replicas, here.size)
        loop_refusals.note_distributed(_IN_FUNCTION)
        return self.plain


class _Steps:
    """One iteration over it.

    Args:
      data: see above.
      steps: the pieces of each step.
      calls: what the loop does with them.
    """

    def __init__(
        self, data: LoopData, steps: division.StepsInTurn, calls: loop_calls.Calls
    ) -> None:
        self._data, self._steps, self._calls = data, steps, calls
        self._done, self._read, self._plain = 0, 0, None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not tf.executing_eagerly():
            return next(self.in_function())
        try:
            pieces = next(self._steps)
        except StopIteration:
            loop_refusals.reading_ends(self)
            self._calls.step_ended()
            raise
        loop_refusals.reading_begins(self)
        self._done += 1
        self._read = self._done
        if (deeds := between_steps.newest()) is not None and self._done == 1:
            deeds.readings.add(self)
        given = self._calls.step_begins(pieces)
        again = functools.partial(self._step_again, loop_calls.open_steps[self._calls], self._done)
        between_steps.remember(again)
        return given

    def _step_again(self, step: loop_calls.LoopStep, number: int) -> None:
        """Begins a step again, for the replicas that are here now."""
        if number <= self._read:
            self._steps, self._read = self._data.steps(), 0
        pieces: Any = None
        while self._read < number:
            pieces = next(self._steps)
            self._read += 1
        self._calls.step_begins_again(step, pieces)

    def __getattr__(self, name: str) -> Any:
        """What else TensorFlow's iterators have."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.in_function(), name)

    def in_function(self) -> Any:
        """TensorFlow's own iterator, which stands where this one does.

        Raises:
          UsageError: TFRUN-107, see `LoopData`.
        """
        if self._plain is None:
            made = self._data.in_function()
            with tf.init_scope():
                self._plain = iter(made)
                for _ in range(self._done):
                    next(self._plain)
        return self._plain


def _is_the_same(given: Any) -> bool:
    """Whether data is the same each time it is read."""
    if isinstance(given, Dataset):
        return not (given.plan.order.shuffle or given.plan.is_random)
    return repeatable.gives_the_same(given)


def distributed(given: Any, make: Callable[[], Any], strategy: Any) -> Any:
    """Returns what a script has distributed, divided among workers or, in turn, among replicas.

    Args:
      given: the data.
      make: distributes it.
      strategy: by which.
    """
    if division.is_of_call():
        return make()
    return LoopData(given, make, strategy) if replica.may_take_turns(strategy) else make()


def in_function(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a `tf.function`, with TensorFlow's own data in place of such."""
    if not any(isinstance(one, LoopData | _Steps) for one in (*args, *kwargs.values())):
        return args, kwargs
    return [_own(one) for one in args], {name: _own(one) for name, one in kwargs.items()}


def _own(given: Any) -> Any:
    return given.in_function() if isinstance(given, LoopData | _Steps) else given
