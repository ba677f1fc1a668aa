"""The logs of each step over all workers, where something looks at them.

They are made beside the step, of what it returns and of what its metrics have counted, in one
collective. So the step is traced once, whether a callback looks at its logs or not; and it does not
wait for the others a second time where none does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import StatelessScope, tree

from tfrun.engine import replica, step_clock, step_losses, variable_values
from tfrun.engine.trained_model import (
    as_tensors,
    in_place_of,
    packed,
    returned_with,
    split_like,
)


class StepLogs:
    """A train or test function, whose logs are those of all replicas where the strategy says so.

    A mean of the replicas' values would be another number where they have counted different numbers
    of samples, or where a metric is no mean (AUC): metrics are computed from what all have counted
    together. What is no metric's is the mean over the replicas.

    Args:
      function: the train or test function; its logs are this worker's own.
      model: whose.
    """

    def __init__(self, function: Callable[[Any], Any], model: Any) -> None:
        self._function, self._model = function, model
        self._strategy = model.distribute_strategy
        graph = {"autograph": False, "reduce_retracing": True}
        self._of_one = tf.function(self._packed, **graph)
        self._of_workers = tf.function(self._over_workers, **graph)
        self._read = tf.function(self._unpacked, **graph)

    def __call__(self, iterator: Any) -> Any:
        local = self._function(iterator)
        has_none = local is None or (isinstance(local, dict) and not local)
        if self._strategy.step_logs == "local" or has_none:
            return local
        # What a traced step returns are tensors.
        tensors = as_tensors(local) if self._model.run_eagerly else local
        turns = replica.turns_of(self._strategy)
        if turns is not None:
            whole = self._of_turns(tensors, turns)
        elif self._strategy.extended._in_multi_worker_mode():
            whole = self._of_workers(tensors)
        else:
            return local
        self._strategy.whole_logs = whole
        return whole

    def _of_turns(self, local: Any, turns: Any) -> Any:
        began = time.perf_counter()
        returned = returned_with(turns, local)
        each = [self._of_one(one, place) for place, one in enumerate(returned)]
        means = self._strategy.extended._host_calls.mean_of_replicas(each)
        found = self._read(means, local)
        if clock := step_clock.of(self._strategy):
            clock.times.waited_for_logs.assign_add(time.perf_counter() - began, read_value=False)
        return found

    def _over_workers(self, local: Any) -> Any:
        """Each worker's replicas have their metrics' copies on its devices."""
        own = self._packed(local, None)

        def reduce() -> tf.Tensor:
            return self._strategy.reduce(tf.distribute.ReduceOp.MEAN, own, axis=None)

        clock = step_clock.of(self._strategy)
        waited = clock.times.waited_for_logs if clock is not None else None
        means = reduce() if waited is None else step_clock.timed(waited, [own], reduce)
        return self._unpacked(means, local)

    def _packed(self, local: Any, place: int | None) -> tf.Tensor:
        """The logs and what the metrics have counted, of one replica here or of them all."""
        totals = []
        for variable in self._counted(local):
            copies = variable_values.copies(variable)
            chosen = copies if place is None else copies[place : place + 1]
            total = tf.cast(tf.add_n([variable_values.read(copy) for copy in chosen]), tf.float64)
            # So often, that the mean is the sum.
            totals.append(total * (self._strategy.num_replicas_in_sync // len(chosen)))
        return packed([*tree.flatten(local), *totals])

    def _unpacked(self, means: tf.Tensor, local: Any) -> Any:
        counted = self._counted(local)
        like = (local, [tf.cast(variable_values.copies(v)[0], tf.float64) for v in counted])
        logs, totals = split_like(like, means)
        if not counted:
            return logs
        values = [tf.cast(total, v.dtype) for v, total in zip(counted, totals, strict=True)]
        with StatelessScope(state_mapping=list(zip(counted, values, strict=True))):
            found = self._model.get_metrics_result()
        return in_place_of(logs, step_losses.metrics_among(self._model, local), found)

    def _counted(self, local: Any) -> list[Any]:
        """The variables of the metrics that are logged."""
        if not isinstance(local, dict) or not step_losses.metrics_among(self._model, local):
            return []
        return [v for v in self._model.metrics_variables if _adds_up(v)]


def _adds_up(variable: Any) -> bool:
    """Whether a metric's variable is the sum of what the replicas have counted."""
    value = variable._value
    is_apart = isinstance(value, tf.distribute.DistributedValues)
    return is_apart and variable.aggregation == "sum" and variable.synchronization == "on_read"
