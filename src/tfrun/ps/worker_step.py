"""Computes one step on a worker: Keras's own `train_step`, `test_step` or `predict_step`.

What is small and not trained (metrics, BatchNorm's statistics, seeds) is read once, and what the
step adds to it is added on the servers: sums and counts come out exactly, in whatever order workers
come. Metrics start from what they are after a reset, so they are not read at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from keras import tree
from keras.src import backend

from tfrun.engine.own_steps import LOGGING, has_own
from tfrun.ps import server_step, variables
from tfrun.ps.feeds import BatchFeed

Kind = Literal["train", "test", "predict"]


class StepScope(backend.StatelessScope):
    """The variables as one step sees them: its own assignments change nothing but what it reads.

    Args:
      metrics: those that start from a value that is known; by variable, that value.
      state: those that are read when the step first asks for them.
    """

    def __init__(self, metrics: Sequence[tuple[Any, Any]], state: Sequence[Any]) -> None:
        super().__init__(collect_losses=True)
        self._starts = {id(v): (v, value) for v, value in metrics}
        self._state = {id(v): v for v in state}
        self._read: dict[int, tuple[Any, tf.Tensor]] = {}

    def get_current_value(self, variable: Any) -> Any:
        key = id(variable)
        if key not in self.state_mapping and (value := self._begin(variable)) is not None:
            self.state_mapping[key] = value
        found = self.state_mapping.get(key)
        # A regularizer takes what it gets here.
        return variable._value if found is None else found

    def add_update(self, update: tuple[Any, Any]) -> None:
        self._begin(update[0])
        super().add_update(update)

    def added(self, variable: Any) -> tf.Tensor | None:
        """What the step adds to a variable; None when it has not assigned it."""
        key = id(variable)
        if key not in self._read or self.state_mapping.get(key) is self._read[key][1]:
            return None
        before = self._read[key][1]
        return tf.cast(self.state_mapping.get(key, before), before.dtype) - before

    def changed(self) -> list[tuple[Any, tf.Tensor]]:
        """Returns (variable, what is added) for the state that the step has assigned."""
        found = [(v, self.added(v)) for key, (v, _) in self._read.items() if key in self._state]
        return [(v, delta) for v, delta in found if delta is not None]

    def _begin(self, variable: Any) -> tf.Tensor | None:
        key = id(variable)
        if key in self._read:
            return self._read[key][1]
        if key in self._starts:
            value = tf.constant(self._starts[key][1])
        elif key in self._state:
            value = tf.convert_to_tensor(variable._value)
        else:
            return None
        self._read[key] = variable, value
        return value


class StepFunction:
    """A step of a model on a feed's batches, traced once for all workers.

    Attributes:
      concrete: takes the feed's arguments and its resource; returns what the model's step does,
        or None where that is the metrics: then nothing of a step comes back to the chief.
    """

    def __init__(
        self, model: Any, kind: Kind, feed: BatchFeed, ledger: server_step.AppliedSteps | None
    ) -> None:
        self._model, self._kind, self._feed, self._ledger = model, kind, feed, ledger
        self._metrics = [  # all metrics of Keras are reset to zeros
            (v, np.zeros(tuple(v.shape), tf.as_dtype(v.dtype).as_numpy_dtype))
            for v in model.metrics_variables
        ]
        count = len(feed.argument_specs)
        specs = [*feed.argument_specs, *feed.resource_specs]

        def step(*given):
            return self._step(given[:count], given[count:])

        made = tf.function(step, autograph=False)
        self.concrete = made.get_concrete_function(*specs)

    def _step(self, arguments: Sequence[Any], resource: Sequence[Any]) -> Any:
        mark, data = self._feed.batch(arguments, resource)
        model, ledger = self._model, self._ledger
        if ledger is None:
            with StepScope(self._metrics, _state(model)):
                return model.predict_step(data)
        version = ledger.version()
        with server_step.tracing_step() as works, StepScope(self._metrics, _state(model)) as scope:
            logs = (model.train_step if self._kind == "train" else model.test_step)(data)
            logs = tree.map_structure(tf.convert_to_tensor, logs)
        works += [work for v, delta in scope.changed() for work in _added(v, delta)]
        ledger.apply(mark, version, self._totals(scope), works)
        return logs if has_own(model, LOGGING) else None

    def _totals(self, scope: StepScope) -> tf.Tensor:
        pieces = []
        for variable, start in self._metrics:
            delta = scope.added(variable)
            flat = tf.zeros([start.size], tf.float64) if delta is None else delta
            pieces.append(tf.reshape(tf.cast(flat, tf.float64), [-1]))
        return tf.concat(pieces, 0) if pieces else tf.zeros([0], tf.float64)


def _state(model: Any) -> list[Any]:
    metrics = {id(v) for v in model.metrics_variables}
    return [v for v in model.non_trainable_variables if id(v) not in metrics]


def _added(variable: Any, delta: tf.Tensor) -> list[server_step.Work]:
    pieces = zip(variables.parts(variable), variables.split(variable, delta), strict=True)
    return [
        server_step.Work(
            device=part.device,
            inputs=[piece],
            run=lambda given, part=part: [variables.add(part, given)],
        )
        for part, piece in pieces
    ]
