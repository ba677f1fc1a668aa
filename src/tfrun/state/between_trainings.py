"""Keeps a worker in its process when a peer dies outside of any training: in evaluate or predict.

Nothing is trained there, so that the call is made again by the workers of the next round. That is
possible while all that stay are in the same call, which can read its data from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tfrun.engine import between_steps, initial_values, variable_values
from tfrun.engine.replica import turns_of
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import settings
from tfrun.job.world import may_stay, why_not_stay, world
from tfrun.state import leave_round, next_round, numbered_calls, random_state
from tfrun.state.fit_keeper import iterations_of
from tfrun.state.share_snapshot import Apart, Stand

T = TypeVar("T")

_made = 0  # such calls
_all_came = False  # to the one that is made


def stand(number: int, *, all_came: bool) -> Stand:
    """How far a worker is that has no state of the script's training `number`.

    Args:
      number: see above.
      all_came: all workers of this round are known to have come to the call that it is in.
    """
    return Stand(call=number, step=_made, all_came=all_came, led=world().is_chief)


def may_stay_without(*, all_came: bool) -> bool:
    """Whether this worker may go on where another one has gone.

    Not where that was the chief, and may not have come to the call that this one is in.
    """
    return all_came or world().is_chief or world().size > 2


def all_came() -> None:
    """The workers have agreed on something in this call: all have come to it."""
    global _all_came
    _all_came = True


def stays(strategy: Any, model: Any, call: Callable[[], T], reads_again: Callable[[], bool]) -> T:
    """Makes a call in which all workers take part, and makes it again when a peer has gone.

    Args:
      strategy: that of the model.
      model: the model, which the call does not train.
      call: makes it.
      reads_again: says whether what it reads can be read from the beginning.
    """
    turns, in_loop = turns_of(strategy), between_steps.newest() is not None
    if turns is None or not may_stay() or why_not_stay() or (leave_round.keeps() and not in_loop):
        return call()
    if not model.built or not reads_again():
        return call()
    before = _Before(model)
    when_traced = turns.when_traced
    turns.when_traced, turns.copies.evaluates = before.is_traced, True
    try:
        if in_loop:
            return _between_steps(call, before)
        return _again_and_again(strategy, model, call, before)
    finally:
        turns.when_traced, turns.copies.evaluates = when_traced, False


def _between_steps(call: Callable[[], T], before: _Before) -> T:
    """The same where a loop of the script's own is between two steps."""
    is_again = False

    def deed() -> T:
        nonlocal is_again
        if is_again:
            before.put_back()
        is_again = True
        return call()

    with initial_values.evaluating():
        return between_steps.made(deed)


def _again_and_again(strategy: Any, model: Any, call: Callable[[], T], before: _Before) -> T:
    global _made, _all_came
    _all_came = False
    while True:
        try:
            with leave_round.keeping_state():
                result = call()
        except Exception as error:
            is_peers = is_peer_error(type(error).__name__, str(error))
            stays_here = is_peers and may_stay_without(all_came=_all_came)
            if settings().rehearses or not stays_here:
                raise
            _enter(strategy, error, iterations_of(model))
        else:
            _made += 1
            return result
        before.put_back()


class _Before:
    """What a call may draw from, as it was before the call: seeds, and the global generators."""

    def __init__(self, model: Any) -> None:
        self._model, self._held = model, dict[str, tuple[Any, Any]]()
        self.is_traced()

    def is_traced(self) -> None:
        """Its function has been traced, which made some of it, and comes no second time."""
        model = self._model
        found = {f"model/{i}": v for i, v in enumerate(model.variables) if not v.trainable}
        found |= variable_values.of_script(model, variable_values.state_variables(model))
        found |= variable_values.global_seed_by_name()
        new = {name: variable for name, variable in found.items() if name not in self._held}
        values = variable_values.hold(list(new.values()))
        self._held |= zip(new, zip(new.values(), values, strict=True), strict=True)
        self._random = random_state.take()

    def put_back(self) -> None:
        for variable, value in self._held.values():
            variable_values.assign(variable, value.numpy())
        random_state.give(self._random)


def _enter(strategy: Any, error: Exception, step: int) -> None:
    number = numbered_calls.next_number()
    with leave_round.keeping_state():
        try:
            nothing = leave_round.nothing_to_keep
            here = stand(number, all_came=_all_came)
            next_round.enter(strategy, here, None, _no_state, step, nothing)
        except Apart:
            raise error from None


def _no_state() -> Any:
    raise AssertionError("nobody is asked for a state that all have")
