"""Adds callbacks around the user's in `fit`, by which workers decide together.

First stands `SharedLogs`, then come the user's callbacks, then `SharedStop`. Between them a
callback may decide from its own worker's clock or data; what leaves the list is agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import keras
import numpy as np

from tfrun.engine.agree import any_worker, mean_over_workers, sum_over_workers
from tfrun.process.progress import Progress
from tfrun.train.fit_report import SampleCounter


class SharedLogs(keras.callbacks.Callback):
    """Replaces what a custom `train_step` or `test_step` logged on this worker by global means.

    Metric variables are read globally at the end of an epoch, but logs that are no metrics are
    those of this worker's last step, and callbacks would decide differently on each worker.
    """

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self._strategy = strategy
        self._shared: dict[str, float] = {}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs:
            self._shared = mean_over_workers(self._strategy, logs)
            logs.update(self._shared)  # all callbacks of the list are given this one dict

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if logs:
            logs.update(self._shared)


class SharedStop(keras.callbacks.Callback):
    """Stops all workers at the same step when any of them wants to stop.

    A worker that left its loop alone would leave the others waiting in a collective for ever.
    The end of each epoch costs one small collective; each batch costs one only in loops in which
    a callback acts on batches. A wish that comes up elsewhere (a signal's handler, a thread) is
    kept for the end of the epoch.

    Args:
      strategy: the multi-worker strategy.
      flags: of the model, those that some callback of some worker may set at single batches:
        "stop_training", "stop_evaluating", "stop_predicting".
      counter: counts this worker's samples of an epoch.
      go_on: is called when the others cannot be asked after a step, as one has gone; raises where
        `fit` cannot go on after that. They are asked again after the next step.
    """

    def __init__(
        self,
        strategy: Any,
        flags: Collection[str],
        counter: SampleCounter,
        go_on: Callable[[Exception], None] | None = None,
    ) -> None:
        super().__init__()
        self._go_on, self._asks_again = go_on, False
        self._strategy, self._flags, self._counter = strategy, flags, counter
        self._wanted = False
        self.samples = 0.0  # of the last epoch, on all workers

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._wanted = False

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        model: Any = self.model
        if "stop_training" in self._flags:
            wanted = model.stop_training = model.stop_training or self._asks_again
            self._asks_again = False
            try:
                self._agree("stop_training")
            except Exception as error:
                if self._go_on is None:
                    raise
                self._go_on(error)
                self._asks_again, model.stop_training = wanted, False
            return
        if model.stop_training:
            self._wanted, model.stop_training = True, False

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if "stop_evaluating" in self._flags:
            self._agree("stop_evaluating")

    def on_predict_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if "stop_predicting" in self._flags:
            self._agree("stop_predicting")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        model: Any = self.model
        wanted = self._wanted or model.stop_training
        mine = np.array([wanted, self._counter.samples], np.float64)
        stops, self.samples = sum_over_workers(self._strategy, mine)
        model.stop_training = bool(stops)

    def _agree(self, flag: str) -> None:
        (stop,) = any_worker(self._strategy, [getattr(self.model, flag)])
        setattr(self.model, flag, stop)


class Watched(keras.callbacks.Callback):
    """Shows that an `evaluate` or `predict` goes on, batch by batch.

    Args:
      shown: where.
      then: is called after each batch.
    """

    def __init__(self, shown: Progress, then: Callable[[], None]) -> None:
        super().__init__()
        self._shown, self._then = shown, then
        shown.forget("loop")  # its first batch is traced

    def on_test_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._shown.step_begins("loop")

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._shown.step_returned()
        self._then()

    on_predict_batch_begin, on_predict_batch_end = on_test_batch_begin, on_test_batch_end
