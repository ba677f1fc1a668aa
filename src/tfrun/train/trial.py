"""Ends the training of a trial after some steps, timed or recorded (see job/trial_request.py)."""

from __future__ import annotations

import functools
import inspect
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.keras import global_batch
from tfrun.data.keras.distributed import DistributedView
from tfrun.data.keras.in_turn import InTurn
from tfrun.data.order.other_batches import NOTHING_KNOWN, Reads
from tfrun.engine import variable_values
from tfrun.job import files, trial_request
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import memory
from tfrun.state.train_state_parts import LoopParts
from tfrun.train import recording
from tfrun.train.learning_rate import ScaledLearningRate, rate_of, schedule_of


class Running:
    """The trial that this process is a part of.

    Attributes:
      trial: what to do.
    """

    def __init__(self, trial: trial_request.Trial, folder: Path) -> None:
        self.trial, self._folder = trial, folder
        self._done = 0
        self._rows: list[tuple[float, int]] = []  # seconds and samples of each timed step
        self._batch = NOTHING_KNOWN
        self._stated: int | None = None
        self._rate: dict[str, Any] = {}
        self._recorded: Mapping[str, float] | None = None  # of this training's last step

    @property
    def is_over(self) -> bool:
        """All its steps have been made."""
        return self._done >= self.trial.steps

    @property
    def is_timed(self) -> bool:
        """The next training has the trial's batch, and its steps are timed."""
        return bool(self.trial.batch) and not self.is_over

    # --- before a training -----------------------------------------------------------------

    def arrange(self, call: inspect.BoundArguments, strategy: Any | None) -> None:
        """Changes what `fit` was called with, as the trial wants it.

        Raises:
          UsageError: TFRUN-503 where each worker trains a model of its own, TFRUN-802 where the
            batch cannot be changed.
        """
        arguments = call.arguments
        if strategy is None and world().size > 1:
            raise UsageError(
                "TFRUN-503",
                "the workers do not train together: each has a model of its own",
                where="model.fit",
                expected="a model that is made in `with tfrun.strategy().scope():`",
            )
        if self.is_timed:
            reads = global_batch.reads_of_fit(arguments, on_servers=False)
            self._take(reads, getattr(arguments["self"], "optimizer", None))
            if isinstance(arguments.get("x"), Dataset):
                arguments["x"] = arguments["x"].with_batch_size(self.trial.batch)
            else:
                arguments["batch_size"] = self.trial.batch
                arguments.pop("steps_per_epoch", None)
            arguments["epochs"] = arguments.get("initial_epoch", 0) + self.trial.steps
        if arguments.get("validation_data") is not None or arguments.get("validation_split"):
            arguments["validation_steps"] = 1  # the script may look for what comes of it

    def dataset(self, dataset: Any, optimizer: Any) -> Any:
        """Returns the data that a custom loop reads instead."""
        if not self.is_timed:
            return dataset
        inner = dataset.given if isinstance(dataset, InTurn) else dataset
        inner = inner.dataset if isinstance(inner, DistributedView) else inner
        self._take(global_batch.reads_of(inner), optimizer)
        return inner.with_batch_size(self.trial.batch)

    def _take(self, reads: Reads, optimizer: Any) -> None:
        if reads.samples is None:
            raise trial_request.fixed_batch()
        if self._stated is None:
            self._stated = reads.batch
            if not isinstance(schedule_of(optimizer), ScaledLearningRate):
                self._rate = rate_of(optimizer)
        if reads.samples < self.trial.batch:
            self._write({"outcome": "data", "samples": reads.samples})
            sys.exit(0)
        self._batch = Reads(batch=self.trial.batch, samples=reads.samples)

    # --- its steps ---------------------------------------------------------------------------

    def around(self, arrange: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Returns `arrange` with the trial's own callback behind all others."""
        return lambda *given: [*arrange(*given), TrialSteps(self)]

    def begins(self, found: Mapping[str, Any]) -> None:
        """A training is about to make its first step."""
        self._recorded = None
        if self.trial.record and self._done == 0 and world().is_chief:
            recording.write(self._folder / "step-0.safetensors", {}, found)

    def stepped(
        self,
        steps: int,
        seconds: float,
        samples: int,
        logs: Mapping[str, Any],
        found: Mapping[str, Any],
        optimizer: Any,
    ) -> None:
        """Steps were made, of so many samples of global batches; `logs` are of all workers."""
        if self.is_over:
            return
        self._done += steps
        if not world().is_chief:
            return
        if self.trial.record:
            recording.write(self._folder / f"step-{self._done}.safetensors", logs, found)
            self._recorded = logs
        if self.trial.batch and self._done > self.trial.untimed:
            self._rows.append((seconds, samples))
            self._rate = self._rate or rate_of(optimizer)
        if self.is_over and self.trial.batch:
            self._tell()

    def validated(self, logs: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """An epoch of `fit` has ended; what its validation gave belongs to its last step."""
        if self._recorded is None:
            return  # not the chief, or the trial's steps were made by an earlier `fit`
        seen = {name: value for name, value in logs.items() if name.startswith("val_")}
        if seen:
            logs = {**self._recorded, **recording.numbers(seen)}
            recording.write(self._folder / f"step-{self._done}.safetensors", logs, found)
        self._recorded = None

    def ended(self) -> None:
        """A training has ended, perhaps before the trial has all its steps."""
        if self._rows and not self.is_over:
            self._tell()

    def samples(self, step: int, steps: int) -> int:
        """Samples of some global batches, from the step `step` of an epoch on."""
        size, samples = self._batch.batch, self._batch.samples
        if not size or not samples:
            return 0
        begin = step * size
        return max(0, min(samples, begin + steps * size) - begin)

    def _tell(self) -> None:
        whole = [row for row in self._rows if row[1] >= self.trial.batch]  # no short batches
        self._write(
            {
                "outcome": "measured",
                "seconds": [row[0] for row in whole or self._rows],
                "counts": [row[1] for row in whole or self._rows],
                "memory": _peak_memory(),
                "samples": self._batch.samples,
                "stated": self._stated,
                "rate": self._rate,
            }
        )

    def _write(self, found: dict[str, Any]) -> None:
        if world().is_chief:
            self._folder.mkdir(parents=True, exist_ok=True)
            with files.whole(self._folder / "found.json") as temporary:
                temporary.write_text(json.dumps(found))


class TrialSteps(keras.callbacks.Callback):
    """Stands behind all callbacks: the last word about the end is its."""

    def __init__(self, running: Running) -> None:
        super().__init__()
        self._running = running
        self._began, self._first = 0.0, 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._running.begins(variable_values.state_variables(self.model))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._running.validated(logs or {}, variable_values.state_variables(self.model))

    def on_train_end(self, logs: Any = None) -> None:
        self._running.ended()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        model: Any = self.model
        seconds = _seconds_since(self._began, model.optimizer)
        first, steps = self._first, batch + 1 - self._first
        self._first = batch + 1
        if self._running.trial.record:
            # As Keras does at an epoch's end; a collective, on all workers.
            logs = recording.numbers(model._get_metrics_result_or_logs(logs))
        samples = self._running.samples(first, steps)
        found = variable_values.state_variables(model)
        self._running.stepped(steps, seconds, samples, logs or {}, found, model.optimizer)
        if self._running.is_over:
            model.stop_training = True


class LoopSteps:
    """The steps of a custom loop in a trial; with the last one the script ends."""

    def __init__(self, running: Running, parts: LoopParts) -> None:
        self._running, self._parts = running, parts
        self._began: float | None = None
        running.begins(parts.variables())

    def dataset(self, dataset: Any) -> Any:
        """Returns the data that the loop reads instead."""
        return self._running.dataset(dataset, self._parts.optimizers[0])

    def epochs(self, stated: int) -> int:
        """Returns at which epoch to end: a timed trial reads on for as long as it needs."""
        return stated + self._running.trial.steps if self._running.trial.batch else stated

    def step_begins(self) -> None:
        """The script is about to do a step of `steps`."""
        self._began = time.perf_counter()

    def step_ended(self, step_in_epoch: int) -> None:
        """The script has done a step; all workers come here.

        Raises:
          UsageError: TFRUN-802 where the step is timed and tfrun does not know its data.
          SystemExit: this was the last one.
        """
        running, optimizer = self._running, self._parts.optimizers[0]
        if self._began is None and running.trial.batch:
            raise trial_request.fixed_batch()
        seconds = _seconds_since(self._began or 0.0, optimizer)
        logs = {}
        if running.trial.record:  # a collective, on all workers
            logs = recording.numbers({m.name: m.result() for m in self._parts.metrics})
        samples = running.samples(max(0, step_in_epoch - 1), 1)
        running.stepped(1, seconds, samples, logs, self._parts.variables(), optimizer)
        if running.is_over:
            sys.exit(0)


@functools.cache
def running() -> Running | None:
    """The trial that this process is a part of; None in an ordinary run."""
    wanted, run_dir = settings().trial, settings().run_dir
    return Running(wanted, trial_request.folder(run_dir)) if wanted and run_dir else None


def _seconds_since(began: float, optimizer: Any) -> float:
    counter = getattr(optimizer, "iterations", None)
    if isinstance(counter, keras.Variable):
        variable_values.copies(counter)[0].numpy()  # waits for a GPU
    return time.perf_counter() - began


def _peak_memory() -> int:
    """Bytes: of the GPU where there is one, else of this process."""
    if tf.config.list_physical_devices("GPU"):
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    return memory.peak()
