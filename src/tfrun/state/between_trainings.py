"""Keeps a worker in its process when a peer dies outside of any training: in evaluate or predict.

Nothing is trained there, so that the call is made again by the workers of the next round. That is
possible while all that stay are in the same call, which can read its data from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tfrun.engine import variable_values
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import settings
from tfrun.job.world import may_stay
from tfrun.state import leave_round, next_round, numbered_calls
from tfrun.state.fit_keeper import iterations_of
from tfrun.state.share_snapshot import Apart, Stand

T = TypeVar("T")

_made = 0  # such calls


def stand(number: int) -> Stand:
    """How far a worker is that has no state of the script's training `number`."""
    return Stand(call=number, step=_made)


def stays(strategy: Any, model: Any, call: Callable[[], T], reads_again: Callable[[], bool]) -> T:
    """Makes a call in which all workers take part, and makes it again when a peer has gone.

    Args:
      strategy: that of the model.
      model: the model, which the call does not train.
      call: makes it.
      reads_again: says whether what it reads can be read from the beginning.
    """
    global _made
    if leave_round.keeps() or not may_stay() or not model.built or not reads_again():
        return call()
    # What layers may draw: the seeds.
    found = [variable for variable in model.variables if not variable.trainable]
    held = variable_values.hold(found)
    while True:
        try:
            with leave_round.keeping_state():
                result = call()
        except Exception as error:
            is_peers = is_peer_error(type(error).__name__, str(error))
            if settings().rehearses or not is_peers:
                raise
            _enter(strategy, error, iterations_of(model))
        else:
            _made += 1
            return result
        for variable, value in zip(found, held, strict=True):
            variable_values.assign(variable, value.numpy())


def _enter(strategy: Any, error: Exception, step: int) -> None:
    number = numbered_calls.next_number()
    with leave_round.keeping_state():
        try:
            nothing = leave_round.nothing_to_keep
            next_round.enter(strategy, stand(number), None, _no_state, step, nothing)
        except Apart:
            raise error from None


def _no_state() -> Any:
    raise AssertionError("nobody is asked for a state that all have")
