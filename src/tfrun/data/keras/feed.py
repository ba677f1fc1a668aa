"""Lets Keras and `tf.distribute` take a `tfrun.Dataset` where they take a `tf.data.Dataset`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.keras import arrays, division, fit_plan, in_turn
from tfrun.data.keras.distributed import Feed
from tfrun.data.keras.epochs_in_sequence import EpochsInSequence
from tfrun.data.keras.fit_plan import FitPlan, Resume
from tfrun.data.keras.python_feed import FeedAdapter
from tfrun.data.ledger import writer as ledger
from tfrun.data.order import repeatable
from tfrun.job import holding
from tfrun.job.world import world


class FeedEpochIterator(EpochsInSequence):
    """Keras's own epoch iterator, but for a `tfrun.Dataset`.

    Attributes:
      passes: how often the data has been begun.
      validates: it is `fit`'s validation data.
      goes_on: its `fit` does, in another round, and has not come to it yet.
      when_out: called where the data has come to its end before Keras knew of it, with the number
        of steps, and `fixed`: whether it says of what size its batches are; None: nobody asks.
    """

    when_out: Callable[..., None] | None = None
    _begun = 0  # steps before the newest one

    def __new__(cls, distribute_strategy=None, *args: Any, **kwargs: Any) -> Any:
        plan = fit_plan.of_call()
        if plan.reads_on is not None and "class_weight" in kwargs:
            return plan.reads_on
        make = plan.make_iterator
        return (make and make(distribute_strategy, kwargs)) or super().__new__(cls)

    def __init__(self, distribute_strategy=None, *args: Any, **kwargs: Any) -> None:
        if fit_plan.of_call().reads_on is self:  # made in an earlier round
            self._goes_on_in(fit_plan.of_call())
            return
        self.goes_on = False
        dataset = in_turn.given(kwargs.get("x"))
        kwargs = {**kwargs, "x": dataset}
        self._feed = None
        # Of fit, evaluate and predict only fit passes class weights, and it always does.
        self._training = "class_weight" in kwargs
        plan = fit_plan.of_training(self) if self._training else FitPlan()
        self._resume, self._pace, self.passes = plan.resume, plan.pace, plan.passes
        self.passes.data = dataset
        is_again = repeatable.note_assigned(dataset)
        if is_again and self._training and kwargs.get("steps_per_epoch"):
            repeatable.tell_of_reading_ahead()
        together = self._pace is not None or (kwargs.get("steps_per_execution") or 1) > 1
        if self._pace is not None:
            kwargs["steps_per_execution"] = 1  # they are put together here
        self._given = dataset
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
        division.see_who_divides(distribute_strategy, dataset, together)
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
        self.draws_in(plan.orders)
        if repeatable.calls_python(dataset):
            self.drawn.is_of_pipeline()
        plan.drawn, self._plan = self.drawn, plan

    def _goes_on_in(self, plan: FitPlan) -> None:
        """The same call goes on in another round, in this process."""
        plan.reads_on, plan.iterator, plan.drawn, self._plan = None, self, self.drawn, plan
        self.draws_in(plan.orders)
        self._resume, self._pace = plan.resume or Resume(), plan.pace
        self.goes_on = True

    @property
    def trains(self) -> bool:
        """Whether it is `fit`'s training data."""
        return self._training

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

    def repeat(self, steps: int) -> Any:
        """As `Feed.repeat`."""
        assert self._feed is not None
        return self._feed.repeat(steps)

    @property
    def why_not_again(self) -> str:
        return "" if self.is_exact else super().why_not_again

    def _enumerate_iterator(self) -> Any:
        steps = self._executions()
        if self._pace is not None and self._is_counted:
            steps = fit_plan.together(steps, self.num_batches or 0, self._pace)
        for begin, end, iterator in steps:
            self._plan.ran_out, self._begun = True, begin
            if self._feed is None:
                iterator = self._batches_of(begin, end, iterator)
            # Where the data has ended nobody comes back here.
            yield begin, end, iterator
            self._plan.ran_out, self._has_given = False, True
            if self._training:
                holding.between_steps()

    def _interrupted_warning(self) -> None:
        """The data has come to its end: Keras warns. Without a single batch nothing is learned."""
        if self._has_given or not world().in_job:
            if self.when_out is not None:
                self.when_out(self._begun, fixed=self._has_fixed_batches())
            super()._interrupted_warning()
            return
        if not self.validates:
            raise errors.empty(self._argument, "at least one batch") from None
        self._has_given = True  # told once
        errors.doubt_validation()

    def _has_fixed_batches(self) -> bool:
        """Whether the script's pipeline says of what size each of its batches is."""
        if not isinstance(self._given, tf.data.Dataset):
            return False
        parts = tf.nest.flatten(self._given.element_spec)
        return all(isinstance(p, tf.TensorSpec) and p.shape[:1].is_fully_defined() for p in parts)

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
        if self._feed is None:
            yield from self._in_sequence()
            return
        self._is_complete = False
        self.drawn.begins()
        yield from self._feed.executions()

    def reset(self) -> None:
        # `fit` looks at a batch to build the model, resets, and then begins.
        self._plan.ran_out = False
        done, self._resume = self._resume, None
        if done is not None and (done.epochs or done.steps or done.trained):
            self._has_given = True
        if self.goes_on:
            self.goes_on, self._armed = False, done
            return
        super().reset()
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


def reads_again(x: Any, *others: Any) -> bool:
    """Whether data that is passed to a call of Keras's can be read from its beginning again."""
    others = tuple(other for other in others if other is not None)
    if isinstance(x, Dataset) or can_convert_arrays((x, *others)):
        return True
    return repeatable.gives_the_same(x)


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
