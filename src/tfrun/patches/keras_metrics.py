"""What a loop of the script's own adds to a Keras metric, where a worker holds several replicas."""

from __future__ import annotations

import functools
from typing import Any

from tfrun.engine import loop_calls, loop_metrics, replica
from tfrun.job.world import may_stay

_wrapped: set[Any] = set()
_updating: list[Any] = []  # metrics of which one method calls that of the class it is derived from


def count_for_each_replica(original):
    """A metric that a loop's body updates counts what each replica of this worker has.

    Each class has an `update_state` of its own, the script's classes too: it is replaced where the
    first metric of the class is made.
    """

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if replica.take_turns() or may_stay():
            for owner in type(self).__mro__:
                update = vars(owner).get("update_state")
                if callable(update) and update not in _wrapped:
                    made = _for_each(update)
                    _wrapped.add(made)
                    owner.update_state = made  # type: ignore[attr-defined]

    return __init__


def _for_each(update: Any) -> Any:
    @functools.wraps(update)
    def update_state(self, *args, **kwargs):
        if not loop_calls.is_in_step() or any(self is one for one in _updating):
            return update(self, *args, **kwargs)
        if loop_metrics.updated(self, update, args, kwargs):
            return None
        _updating.append(self)
        try:
            return update(self, *args, **kwargs)
        finally:
            _updating.pop()

    return update_state
