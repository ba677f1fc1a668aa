"""Reports a training to the launcher: how it begins, and the steps and metrics of a `fit`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras

from tfrun.data.order.other_batches import Reads
from tfrun.engine import compression, multi_step_function, variable_values
from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.train import devices
from tfrun.train.learning_rate import rate_of


def tell_training(
    optimizer: Any, reads: Reads, strategy: Any | None, script_batch: int | None = None
) -> None:
    """Reports a training that begins, from the chief."""
    if not channel.is_open():
        return
    if text := devices.unseen():
        channel.emit(reports.WorkerNotice(text=text))
    if not world().is_chief:
        return
    if text := devices.unrepeatable():
        channel.emit(reports.WorkerNotice(text=text))
    channel.emit(
        reports.Training(
            global_batch=reads.batch,
            samples=reads.samples,
            workers=1 if strategy is None else world().size,
            rate=rate_of(optimizer),
            compression=compression.shown(strategy),
            script_batch=script_batch,
        )
    )


class SampleCounter(keras.callbacks.Callback):
    """Counts this worker's real samples of an epoch, at no cost to a step.

    Keras's loss tracker already weights each step by its number of samples; its `count` is read
    before validation resets it.

    Attributes:
      samples: of the last epoch on this worker; 0 when a custom `train_step` does not track them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0.0
        self._read = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.samples, self._read = 0.0, False

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._read_once()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._read_once()

    def _read_once(self) -> None:
        if not self._read:
            self.samples, self._read = tracked_samples(self.model), True


class StepCounter(keras.callbacks.Callback):
    """Counts the steps of an epoch that were made, where Keras tells how many were planned.

    Attributes:
      done: steps of this epoch, those before a resume included.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done = self._begin = 0
        self._before: int | None = None
        self._asked = True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.done = 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._begin, self._asked = batch, False
        model: Any = self.model
        if model.steps_per_execution > 1:
            self._before = multi_step_function.steps_so_far(model)

    def executed(self, end: int) -> int:
        """Returns `done`, after the execution whose last step was planned to be `end`."""
        if not self._asked:
            self._asked = True
            now = None if self._before is None else multi_step_function.steps_so_far(self.model)
            planned = (self.params or {}).get("steps") or end + 1
            self.done = min(end + 1, planned)
            if now is not None and self._before is not None:
                self.done = self._begin + now - self._before
            self._before = None
        return self.done


def tracked_samples(model: Any) -> float:
    """Returns the samples behind this worker's part of the loss since the metrics were reset.

    Reads the local copies of keras `Trainer._loss_tracker.count`, because reading the variable
    itself is a sum over all workers.
    """
    tracker = getattr(model, "_loss_tracker", None)
    if tracker is None:
        return 0.0
    return sum(float(copy.numpy()) for copy in variable_values.copies(tracker.count))


class FitReport(keras.callbacks.Callback):
    """Sends "fit_begin", "epoch_end" and "fit_end" up the chief's channel.

    Args:
      samples: returns the samples of the epoch that just ended, over all workers.
      counter: counts its steps.
    """

    def __init__(self, samples: Callable[[], float], counter: StepCounter) -> None:
        super().__init__()
        self._samples_of_epoch, self._counter = samples, counter
        self._steps = self._samples = self._epoch_steps = 0
        self._start = self._epoch_start = 0.0

    def get_state(self) -> dict[str, Any]:
        """What a run of the script that goes on has to know."""
        return {
            "steps": self._steps,
            "samples": self._samples,
            "began": time.time() - (time.perf_counter() - self._start),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Counts on from `state`: the time that was lost is a part of the whole."""
        self._steps, self._samples = state["steps"], state["samples"]
        self._start = time.perf_counter() - (time.time() - state["began"])

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._start = time.perf_counter()
        params = self.params or {}
        _tell(reports.FitBegin(epochs=params.get("epochs"), steps=params.get("steps")))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start, self._epoch_steps = time.perf_counter(), 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_steps = self._counter.executed(batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = time.perf_counter() - self._epoch_start
        samples = int(self._samples_of_epoch())
        self._steps += self._epoch_steps
        self._samples += samples
        fields = _rates(self._epoch_steps, samples, seconds)
        _tell(reports.EpochEnd(epoch=epoch, **fields, logs=dict(logs or {})))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        seconds = time.perf_counter() - self._start
        fields = _rates(self._steps, self._samples, seconds)
        _tell(reports.FitEnd(**fields, logs=dict(logs or {})))


def _tell(report: reports.Report) -> None:
    if world().is_chief:
        channel.emit(report)


def _rates(steps: int, samples: int, seconds: float) -> dict[str, Any]:
    fields: dict[str, Any] = {"steps": steps, "seconds": seconds}
    if seconds > 0:
        fields["steps_per_second"] = steps / seconds
    if samples:
        fields["samples"] = samples
        fields["samples_per_second"] = samples / seconds
    return fields
