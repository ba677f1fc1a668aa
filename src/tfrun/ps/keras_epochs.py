"""Gives Keras's unchanged loop the results of steps where it expects batches.

`fit`, `evaluate` and `predict` of Keras ask an epoch iterator for batches and call a function of
the model on each. Here the iterator begins steps on workers and yields once for each that has
ended, and the function returns its logs. So callbacks, validation, `History`, progress bars and
`stop_training` are Keras's own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.keras import arrays as keras_arrays
from tfrun.data.keras import fit_plan
from tfrun.data.keras.fit_plan import FitPlan, Resume
from tfrun.data.ledger import writer as ledger
from tfrun.data.order.position import Position
from tfrun.data.order.shards import Replicas
from tfrun.engine.own_steps import LOGGING, has_own
from tfrun.ps import server_step
from tfrun.ps.errors import cannot_be_made, no_steps
from tfrun.ps.feeds import BatchFeed, PositionFeed
from tfrun.ps.pipelines import PipelineFeed
from tfrun.ps.step_scheduler import PassRun, Rate
from tfrun.ps.worker_step import Kind, StepFunction

ALONE = Replicas(first=0, count=1, total=1)  # the chief names the batches: its ledger is whole
LOG_SECONDS = 0.25  # logs of a step are the metrics as of then, read at most so often


class StepResult:
    """What Keras gets for a batch: the result of a step that has ended."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __next__(self) -> Any:
        return self.result

    def __iter__(self) -> StepResult:
        return self


class Workspace:
    """What a model has on the servers for one kind of step, from one call to the next.

    Attributes:
      ledger: its counts.
      numbers: those of its steps.
    """

    def __init__(self, model: Any) -> None:
        sizes = [int(np.prod(v.shape)) for v in model.metrics_variables]
        strategy = model.distribute_strategy
        self.ledger = server_step.AppliedSteps(strategy.servers, sum(sizes))
        self.next_number = 0

    @staticmethod
    def of(model: Any, kind: Kind) -> Workspace | None:
        if kind == "predict":
            return None
        found = model.__dict__.get("_tfrun_workspaces")
        if found is None:
            found = {}
            object.__setattr__(model, "_tfrun_workspaces", found)
        key = kind, tuple(id(v) for v in model.metrics_variables)
        if key not in found:
            found[key] = Workspace(model)
        return found[key]


class KerasEpochs:
    """The epoch iterator of one `fit`, `evaluate` or `predict`.

    Attributes:
      validates: it is `fit`'s validation data.
    """

    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self._model = model
        self.validates = False
        self._strategy = model.distribute_strategy
        self.kind: Kind = (
            "train" if "class_weight" in options else "test" if "y" in options else "predict"
        )
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        plan = fit_plan.of_training(self) if self.kind == "train" else FitPlan()
        self._resume = plan.resume
        self._given = options.get("steps_per_epoch")
        self.feed: BatchFeed = _feed(options, self.kind, self._strategy.workers, self._resume)
        self._dataset = self.feed.dataset if isinstance(self.feed, PositionFeed) else None
        self.num_batches: int | None = self._given or self.feed.steps
        self._function: StepFunction | None = None
        self._workspace: Workspace | None = None
        self._run: PassRun | None = None
        self._epoch = itertools.count()
        self._rate = Rate(LOG_SECONDS)
        self._logs: Any = {}
        self._step = 0  # where in the epoch it begins
        self._trained = False  # nothing of the epoch is left
        self._tape = ledger.Tape()
        self._carried: np.ndarray | None = None
        self._is_running = False
        if self.kind == "train" and self._dataset is None:
            ledger.not_covered(
                "a tf.data pipeline on parameter servers", "pass arrays or a tfrun.Dataset"
            )

    # --- Keras's names -----------------------------------------------------------------------

    def reset(self) -> None:
        done, self._resume = self._resume, None
        data, steps = self._dataset, self.num_batches
        if data is not None and self.kind == "train":
            left = data.position
            begin, sought = data.start(whole_epochs=steps == data.steps_per_epoch)
            count = begin.count(data.steps_per_epoch)
            if done is not None:
                count += done.epochs * (steps or 0) + done.steps
            data.advance(Position.of(count, data.steps_per_epoch))
            if done is not None and done.whole:
                ledger.open_tape(data, begin, ALONE, how="passed")
            else:
                how = "resumed" if done is not None else "sought" if sought else "next"
                self._tape = ledger.open_tape(data, data.position, ALONE, how=how, left=left)
        if done is not None and not done.whole:
            self._step, self._trained = done.steps, done.trained

    def symbolic_batch(self) -> Any:
        """A batch's shapes and dtypes, to build a model from; (x, y, sample_weight)."""
        return data_adapter_utils.unpack_x_y_sample_weight(self.feed.spec)

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        yield

    def __iter__(self) -> Iterator[tuple[int, int, StepResult]]:
        first, self._step = self._step, 0
        steps = self.num_batches
        trained, self._trained = self._trained, False
        if trained or (steps is not None and first >= steps and first):
            self.feed.next_epoch()
            return
        run = self._start(first)
        ended = first
        self._is_running = True
        try:
            for number, result in self._in_order(run.results()):
                yield ended, ended, StepResult(self._result(number, result))
                ended += 1
        except GeneratorExit:  # `stop_training`: what has begun counts
            self._finish(run)
            raise
        finally:
            self._is_running = False
            if self._workspace is not None:  # no number ever stands for two steps
                self._workspace.next_number = max(run.number, self.feed.next_number)
        self._finish(run)
        if not ended and self.kind == "test" and self.validates:
            errors.doubt_validation()
        elif not ended:
            call = {"train": "fit", "test": "evaluate", "predict": "predict"}[self.kind]
            raise errors.empty(f"model.{call}, x", "at least one batch")
        if self.num_batches is None:
            self.num_batches = ended

    # --- for checkpoints ---------------------------------------------------------------------

    def carry_over(self, totals: np.ndarray) -> None:
        """Has the metrics of the next epoch go on from the sums of a part that is done."""
        self._carried = totals

    def quiesce(self) -> int | None:
        """Waits until no step is in flight, and brings the metrics up to date.

        Returns:
          The steps of this epoch that have been applied: all that were begun. None between epochs.
        """
        run = self._run
        if run is None or not self._is_running:
            return None
        self._late += run.drain()
        self.publish()
        return self._first + run.applied

    # -----------------------------------------------------------------------------------------

    def _start(self, first: int) -> PassRun:
        model = self._model
        work = Workspace.of(model, self.kind)
        number = work.next_number if work is not None else 0
        resource = self.feed.open(self._coordinator, number)
        if self._function is None:
            self._workspace = work
            self._function = StepFunction(model, self.kind, self.feed, work and work.ledger)
        if work is not None:
            work.ledger.clear_metrics()
        self._first, self._late = first, list[tuple[int, Any]]()
        carried, self._carried = self._carried, None
        self._base = None if carried is None else np.asarray(carried, np.float64)
        left = None if self.num_batches is None else self.num_batches - first
        turns = self.feed.turns(left)
        self._run = PassRun(
            self._coordinator,
            self._function.concrete,
            self.feed,
            resource,
            # Where workers take turns, those are the epoch.
            self._places(first, left if turns is None else None),
            number,
            turns,
        )
        return self._run

    def _places(self, first: int, left: int | None) -> Iterator[tuple[int, int]]:
        """The batches of one epoch of Keras's, from the first one on."""
        data = self._dataset
        count = itertools.count() if left is None else range(left)
        epoch = next(self._epoch)
        begin = 0
        if data is not None:
            begin = data.position.count(data.steps_per_epoch) if self.kind == "train" else 0
        for number in count:
            if data is None:
                yield epoch, first + number
                continue
            place = divmod(begin + number, data.steps_per_epoch)
            if self.kind == "train":
                self._tape.taken(*place)
            yield place

    def _in_order(self, results: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Results as they come, those that a checkpoint has waited for too; predictions in turn."""
        waiting: dict[int, Any] = {}
        expected = 0
        for one in results:
            for number, result in [one, *self._take_late()]:
                if self.kind != "predict":
                    yield number, result
                    continue
                waiting[number] = result
                while expected in waiting:
                    yield expected, waiting.pop(expected)
                    expected += 1
        yield from sorted([*waiting.items(), *self._take_late()], key=lambda one: one[0])

    def _finish(self, run: PassRun) -> None:
        run.stop()
        if self._dataset is not None and self.kind == "train":
            steps = self._dataset.steps_per_epoch
            count = self._dataset.position.count(steps) + run.applied
            self._dataset.advance(Position.of(count, steps))
        self.publish()

    def _take_late(self) -> list[tuple[int, Any]]:
        late, self._late = self._late, []
        return late

    def _result(self, number: int, result: Any) -> Any:
        """The logs of a step, or its predictions."""
        if self.kind == "predict":
            return tf.nest.map_structure(_fetched, result, expand_composites=True)
        if has_own(self._model, LOGGING):
            if self._rate.due():
                self._logs = tree.map_structure(_plain, result)
        elif self._rate.due():
            self._logs = self._read_logs()
        return self._logs.copy()

    def _read_logs(self) -> dict[str, Any]:
        """The metrics of the epoch so far, computed here."""
        mapping = [(v, tf.constant(value)) for v, value in self._totals()]
        with tf.device("/job:chief/task:0"), keras.StatelessScope(mapping):
            logs: Any = tree.map_structure(_plain, self._model.get_metrics_result())
            return logs

    def _totals(self) -> list[tuple[Any, np.ndarray]]:
        assert self._workspace is not None
        sums = self._workspace.ledger.read()[1 + server_step.STALENESS :]
        if self._base is not None:
            sums = sums + self._base
        found, start = [], 0
        for variable in self._model.metrics_variables:
            size = int(np.prod(variable.shape))
            value = sums[start : start + size].reshape(tuple(variable.shape))
            found.append((variable, value.astype(tf.as_dtype(variable.dtype).as_numpy_dtype)))
            start += size
        return found

    def publish(self) -> None:
        """Gives the model's metric variables the sums of the steps that were applied."""
        if self._workspace is not None:
            for variable, value in self._totals():
                variable._value.assign(value)


def _fetched(value: Any) -> Any:
    """A worker's tensor, here: Keras wants tensors, and concatenates where there are several."""
    return tf.convert_to_tensor(value.numpy()) if tf.is_tensor(value) else value


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.size == 1 else array


def _feed(
    options: dict[str, Any], kind: Kind, workers: int, done: Resume | None = None
) -> BatchFeed:
    data, weights = options.get("x"), options.get("class_weight")
    function = make_class_weight_map_fn(weights) if weights is not None else None
    steps = options.get("steps_per_epoch")
    if not isinstance(data, Dataset):
        shuffle = options.get("shuffle", False) if kind == "train" else False
        arrays = {**options, "class_weight": weights, "shuffle": shuffle}
        made = None if callable(data) else keras_arrays.as_dataset(arrays)
        if made is not None:
            return PositionFeed(made)  # class weights are among its sample weights
    else:
        return PositionFeed(data, function)
    creator = getattr(data, "dataset_fn", None)
    data = creator if callable(creator) else data
    if isinstance(data, tf.data.Dataset):
        if kind != "train" and steps is not None:
            # The first ones, whichever worker is faster.
            data, steps = data.take(steps), None
        return PipelineFeed(data, steps, workers, function, done)
    is_python_data = hasattr(data, "__getitem__") or hasattr(data, "__next__")
    if not callable(data) or is_python_data:
        raise cannot_be_made(f"a {type(data).__name__}")
    if steps is None:
        raise no_steps()
    return PipelineFeed(data, steps, workers, function, done)
