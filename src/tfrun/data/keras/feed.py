"""Lets Keras and `tf.distribute` take a `tfrun.Dataset` where they take a `tf.data.Dataset`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.global_random import Drawn
from tfrun.data.keras import arrays, division, fit_plan
from tfrun.data.keras.distributed import Feed
from tfrun.data.keras.fit_plan import FitPlan, Resume
from tfrun.data.keras.python_feed import FeedAdapter, PythonEpochIterator
from tfrun.data.ledger import writer as ledger
from tfrun.data.order import repeatable
from tfrun.job import holding
from tfrun.job.world import world

Execution = tuple[int, int, Iterator[Any]]  # its first and last step, and their batches


class FeedEpochIterator(PythonEpochIterator):
    """Keras's own epoch iterator, but for a `tfrun.Dataset`.

    Attributes:
      passes: how often the data has been begun.
      validates: it is `fit`'s validation data.
    """

    def __new__(cls, distribute_strategy=None, *args: Any, **kwargs: Any) -> Any:
        make = fit_plan.of_call().make_iterator
        return (make and make(distribute_strategy, kwargs)) or super().__new__(cls)

    def __init__(self, distribute_strategy=None, *args: Any, **kwargs: Any) -> None:
        dataset = kwargs.get("x")
        self._feed = None
        # Of fit, evaluate and predict only fit passes class weights, and it always does.
        self._training = "class_weight" in kwargs
        plan = fit_plan.of_training(self) if self._training else FitPlan()
        self._resume, self._pace, self.passes = plan.resume, plan.pace, plan.passes
        self.passes.data = dataset
        if self._pace is not None:
            kwargs["steps_per_execution"] = 1  # they are put together here
        self._armed: Resume | None = None
        self._given, self._first_is_read, self._all_are_read = dataset, None, False
        self._has_given = False  # a step has had a batch of it, in this run or an earlier one
        call = "fit" if self._training else "evaluate" if "y" in kwargs else "predict"
        self._argument = f"model.{call}, x"
        among: division.Whom = "workers" if call == "predict" else "replicas"
        self.validates = False
        if self._training and not isinstance(dataset, Dataset) and world().in_job:
            made = plan.exact = plan.exact or arrays.as_dataset(kwargs)
            if made is not None:
                dataset = made
                kwargs = {**kwargs, "y": None, "sample_weight": None, "class_weight": None}
                if (kwargs.get("steps_per_epoch") or 0) > dataset.steps_per_epoch:
                    super()._interrupted_warning()
                    kwargs["steps_per_epoch"] = None  # as Keras: an epoch ends with its data
        anew = isinstance(dataset, Dataset)
        self._per_step = division.per_step(distribute_strategy, among, anew=anew)
        self._reads_all = division.reads_all(distribute_strategy, among) and not anew
        if isinstance(dataset, Dataset):
            if self._training:
                plan.begins = dataset.stands(plan.begins)
            with division.among(among):
                self._feed = _feed(dataset, distribute_strategy, kwargs, plan.epochs)
            sizes = SimpleNamespace(
                num_batches=self._feed.epoch_steps, batch_size=dataset.batch_size
            )
            kwargs = {**kwargs, "x": FeedAdapter(self._feed, sizes), "class_weight": None}
        trained_on = contextlib.nullcontext() if self._training else ledger.not_trained_on()
        with trained_on, division.among(among):
            super().__init__(distribute_strategy, *args, **kwargs)
        plan.drawn, self._plan = self.drawn, plan

    @property
    def is_exact(self) -> bool:
        """Whether it can be read anew, from any step on."""
        return self._feed is not None

    def get_ready(self) -> None:
        """As `Feed.get_ready`."""
        assert self._feed is not None
        self._feed.get_ready()

    def resume(self, done: Resume) -> None:
        """Goes on behind what is done, before anything has been read."""
        self._resume = done
        self.reset()

    def again(self, steps: int) -> Any:
        """As `Feed.again`."""
        assert self._feed is not None
        return self._feed.again(steps)

    def _enumerate_iterator(self) -> Any:
        steps, spec = self._executions(), None
        if self._reads_all:
            spec = self._distributed_dataset.element_spec
        if self._pace is not None and self._is_counted:
            steps = fit_plan.together(steps, self.num_batches or 0, self._pace)
        for begin, end, iterator in steps:
            self._plan.ran_out = True
            # Where the data has ended nobody comes back here.
            yield begin, end, iterator if spec is None else division.AllPieces(iterator, spec)
            self._plan.ran_out, self._has_given = False, True
            if self._training:
                holding.between_steps()

    def _interrupted_warning(self) -> None:
        """The data has come to its end: Keras warns. Without a single batch nothing is learned."""
        if self._has_given or not world().in_job:
            super()._interrupted_warning()
            return
        if not self.validates:
            raise errors.empty(self._argument, "at least one batch") from None
        self._has_given = True  # told once
        errors.doubt_validation()

    @property
    def _is_counted(self) -> bool:
        """Whether no epoch's data can end before the epoch."""
        if self._feed is not None:
            return True
        if self.steps_per_epoch is None:
            return self._num_batches is not None
        cardinality = self._distributed_dataset.cardinality
        cardinality = cardinality() if callable(cardinality) else cardinality
        return int(cardinality) == tf.data.INFINITE_CARDINALITY

    def _executions(self):
        if self._feed is not None:
            self.drawn.begins()
            yield from self._feed.executions()
            return
        done, self._armed = self._armed, None
        if done is None:
            yield from super()._enumerate_iterator()
            return
        repeatable.warn_once(self._given)
        executions = super()._enumerate_iterator()
        with contextlib.ExitStack() as until_it_goes_on, done.passing():
            self._pass_epochs(done)
            if done.trained:
                self.pass_by(done.steps if done.stopped else None)
                return
            until_it_goes_on.enter_context(self.drawn.stops_at(done.steps))
            # Here too: the epoch's data draws its order with its first batch.
            rest = _from_step(done.steps, executions, self._per_step)
        yield from _of_one(rest, self._per_step)
        yield from executions

    def _get_iterator(self):
        self.passes.begun += 1
        return super()._get_iterator()

    def _pass_epochs(self, done: Resume) -> None:
        """Goes past the whole epochs, and to the same pass over the data."""
        for epoch in range(done.epochs):
            last = done.whole and epoch + 1 == done.epochs
            self.pass_by(begun=done.begun[0] if last and done.begun else None)
            done.after_epoch(epoch)
        self.passes.check(done.begun, "the training data")

    def pass_by(self, steps: int | None = None, *, begun: int | None = None) -> None:
        """Goes past an epoch that is done, as Keras goes through one.

        A `tf.data` pipeline that begins anew with each epoch draws the epoch's order when it
        does, and need not be read, unless what comes later depends on that. A generator, or what
        `fit` reads on over the ends of epochs, is read through.

        Args:
          steps: after how many steps the epoch was left; None where its data had come to its end.
          begun: how often the data is to be begun, at most; None if nobody knows.
        """
        self._has_given = True
        is_counted = self.data_adapter.num_batches is not None
        reads = self.steps_per_epoch is not None or not is_counted or self._is_read()
        reads = reads or Drawn.any
        with self.catch_stop_iteration():
            for begin, end, iterator in super()._enumerate_iterator():
                for _ in range((end + 1 - begin) * self._per_step if reads else 0):
                    division.element(iterator)
                if steps is not None and end + 1 >= steps:
                    return
                if not reads and begun == self.passes.begun:  # left before its data had ended
                    return

    def _is_read(self) -> bool:
        """Whether the next pass over a pipeline has to be read, too, to be passed."""
        if self._first_is_read is None:
            self._first_is_read = repeatable.has_cache(self._given)
            self._all_are_read = repeatable.moves_while_read(self._given)
        first, self._first_is_read = self._first_is_read, False
        return first or self._all_are_read

    def reset(self) -> None:
        # `fit` looks at a batch to build the model, resets, and then begins.
        super().reset()
        self._plan.ran_out = False
        done, self._resume = self._resume, None
        if done is not None and (done.epochs or done.steps or done.trained):
            self._has_given = True
        if self._feed is not None:
            self._feed.rewind()
            if done is not None and done.whole:
                self._feed.passed()
            elif done is not None:
                self._feed.resume(done)
            if done is not None:
                for epoch in range(done.epochs):
                    done.after_epoch(epoch)
        elif done is not None and done.whole:
            self._pass_epochs(done)
        else:
            self._armed = done

    @property
    def element_spec(self) -> Any:
        """What a batch looks like, without reading one."""
        return self._distributed_dataset.element_spec

    def coded_errors(self) -> contextlib.AbstractContextManager:
        """A context in which an error of a `tfrun.Dataset` is its own; no other data has any."""
        return self._feed.dataset.coded_errors() if self._feed else contextlib.nullcontext()

    @contextlib.contextmanager
    def catch_stop_iteration(self):
        with self.coded_errors(), super().catch_stop_iteration():
            yield


def _from_step(step: int, executions: Iterator[Execution], per_step: int) -> Execution | None:
    """Reads the batches of the steps before; returns what is left of the execution it ends in.

    Args:
      step: of the epoch, that comes next.
      executions: of the epoch.
      per_step: elements that make up a step.
    """
    while step:
        found = next(executions, None)
        if found is None:
            return None
        begin, end, iterator = found
        for _ in range((min(end + 1, step) - begin) * per_step):
            division.element(iterator)
        if end + 1 >= step:
            return step, end, iterator
    return None


def _of_one(execution: Execution | None, per_step: int) -> list[Execution]:
    """What is left of an execution, with its batches, if there are any.

    The state is one of within it: the rest of it makes no steps but its own.
    """
    if execution is None:
        return []
    step, end, iterator = execution
    batches = list(itertools.islice(_elements(iterator), (end + 1 - step) * per_step))
    return [(step, end, iter(batches))] if batches else []


def _elements(iterator: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            yield division.element(iterator)
        except StopIteration:
            return


def _feed(dataset: Dataset, strategy: Any, options: dict[str, Any], epochs: int | None) -> Feed:
    for name in ("y", "sample_weight"):
        if options.get(name) is not None:
            what = f"`{name}` was passed beside a tfrun.Dataset"
            raise errors.bad_argument(what, name, "samples that contain it, as (x, y, weight)")
    weights = options.get("class_weight")
    return Feed(
        dataset,
        strategy,
        training="class_weight" in options,
        epoch_steps=options.get("steps_per_epoch"),
        epochs=epochs,
        per_execution=options.get("steps_per_execution", 1),
        batch_function=make_class_weight_map_fn(weights) if weights is not None else None,
        looks_first=True,
    )
