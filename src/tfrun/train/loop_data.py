"""What a script has distributed for a loop of its own, where workers take turns for replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.keras import division
from tfrun.data.keras.in_turn import InTurn
from tfrun.engine import loop_calls, loop_refusals
from tfrun.job.world import world


class LoopData(InTurn):
    """Data that is divided among the replicas of the job: a loop is given the first one's piece.

    What it does with that in a `tf.function` is done for the others' as well, see loop_calls.py.

    Args:
      made: the data, distributed among the replicas.
      strategy: by which.

    Attributes:
      made: see above.
    """

    def __init__(self, made: Any, strategy: Any) -> None:
        self.made, self._strategy = made, strategy

    def __iter__(self) -> Iterator[Any]:
        _check_eager()
        return _Steps(self.made, self._strategy)

    def reduce(self, initial_state: Any, reduce_func: Any) -> Any:
        """A loop over it in a `tf.function`."""
        _check_eager()
        return super().reduce(initial_state, reduce_func)

    def __len__(self) -> int:
        return len(self.made)

    @property
    def cardinality(self) -> Any:
        return self.made.cardinality

    @property
    def element_spec(self) -> Any:
        return self.made.element_spec


class _Steps:
    """One iteration over it."""

    def __init__(self, made: Any, strategy: Any) -> None:
        calls = loop_calls.of(strategy)
        assert calls is not None
        self._calls = calls
        with division.among("replicas"):
            iterator = iter(made)
        self._steps = division.StepsInTurn(iterator, strategy, made.element_spec)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        _check_eager()
        try:
            pieces = next(self._steps)
        except StopIteration:
            self._calls.step_ended()
            raise
        return self._calls.step_begins(pieces)


def distributed(make: Callable[[], Any], strategy: Any) -> Any:
    """Returns what a script has distributed, divided among workers or, in turn, among replicas.

    Args:
      make: distributes it.
      strategy: by which.
    """
    if division.is_of_call():
        return make()
    if loop_calls.of(strategy) is None or not loop_calls.take_turns():
        loop_refusals.note_distributed()
        return make()
    with division.among("replicas"):
        return LoopData(make(), strategy)


def _check_eager() -> None:
    """Refuses to be read in a `tf.function`, which would get one piece and no other.

    Raises:
      UsageError: TFRUN-107.
    """
    if not tf.executing_eagerly():
        here = world()
        what = "distributed data that a tf.function iterates over"
        raise errors.one_replica_each(what, here.replicas, here.size)
