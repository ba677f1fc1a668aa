"""Tracks where one `fit` stands in its data and its validation data, and takes it there again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from keras.src.backend.tensorflow import trainer
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.drawn_orders import DrawnOrders
from tfrun.data.global_random import Drawn, are_equal
from tfrun.data.keras import alike
from tfrun.data.keras.fit_plan import FitPlan, Resume
from tfrun.data.order import other_batches, repeatable
from tfrun.job.world import world
from tfrun.state import random_state
from tfrun.state.snapshot import Snapshot

Stand = list[list[int] | None]


class FitData:
    """The data of one `fit`.

    Args:
      model: the model.
      arguments: those of `fit`.
      plan: what it is to do with its data.
      on_servers: parameter servers' workers read it, who have no passes in common.
      stayed: this process has trained in the round before, and read its data so far.
    """

    def __init__(
        self,
        model: Any,
        arguments: Mapping[str, Any],
        plan: FitPlan,
        *,
        on_servers: bool,
        stayed: bool = False,
    ) -> None:
        self._first_epoch: int = arguments.get("initial_epoch", 0)
        self._plan = plan
        if not on_servers:
            plan.sketches = alike.sketches(arguments)
        self._validations = _Validations(model, arguments, plan, on_servers=on_servers)
        self._random, self._stayed = random_state.take(), stayed
        given = arguments.get("x"), self._validations.given
        self._reads_pipelines = any(map(repeatable.calls_python, given))

    # --- in a process that stays ---------------------------------------------------------------

    def rehearse_validation(self) -> None:
        """Traces a step of its validation, whose result nobody wants."""
        self._validations.rehearse()

    @property
    def is_exact(self) -> bool:
        """Whether all that it reads can be read anew from any step on."""
        iterator = self._plan.iterator
        return iterator is not None and iterator.is_exact and not self._validations.has_memory

    @property
    def why_not_again(self) -> str:
        """Why what it has read cannot be given again in this process; "" if it can."""
        read = self._plan.iterator, self._plan.validation
        return next((why for one in read if one and (why := one.why_not_again)), "")

    @property
    def draws_on(self) -> bool:
        """Whether the data draws from the global random generators, and goes on doing so.

        What this process has read ahead has drawn already: what the generators hold is not put
        back.
        """
        return self._stayed and Drawn.any

    def training_begins(self, kept: Snapshot | None) -> None:
        """Callbacks are told that the training begins: in the middle of it where a state was kept.

        Keras has just forgotten the validation data.
        """
        self._validations.goes_on(kept)

    def validation_begins(self, epoch: int) -> None:
        """The validation of an epoch begins."""
        self._validations.begins(epoch)

    def epoch_is_over(self) -> None:
        """Nobody goes back before the end of the epoch any more."""
        self._validations.is_over()

    # -----------------------------------------------------------------------------------------

    @property
    def orders(self) -> DrawnOrders:
        """What it draws between its batches."""
        return self._plan.orders

    @property
    def stand(self) -> Stand:
        """How often the data has been begun (`Passes.stand`): of training, of validations.

        Asked between two epochs: what has been begun of one is no part of it.
        """
        return [self._plan.passes.stand, self._validations.stand]

    def pass_by(self, kept: Snapshot, epochs: int) -> None:
        """Has Keras go past so many epochs of this `fit`, all of those that it had."""
        self._plan.resume = self._passing(kept, epochs, whole=True)

    def go_on(self, kept: Snapshot) -> other_batches.ResumePoint:
        """Has `fit` begin where a state was kept, and returns where in the data that is now.

        Raises:
          TfrunError: TFRUN-617 where nobody can say, and the job has only begun.
        """
        at, place, values = self._where(kept), kept.place, kept.values
        stopped = values.get("stopped", False)
        self._plan.resume = self._passing(
            kept,
            place.epoch - self._first_epoch,
            steps=at.step,
            skip=at.skip,
            trained=values["trained"] or stopped,
            stopped=stopped,
            pipeline=tuple(values.get("pipeline", ())),
        )
        return at

    def repeat(self, steps: int) -> Any:
        """Returns an iterator of the batches of the step that is being made, in another round.

        Args:
          steps: that it makes.
        """
        return self._plan.iterator.repeat(steps)

    def random_is_put_back(self) -> None:
        """Called before it is: what is passed by draws from what the script has drawn from so far.

        As it did in the script's earlier run, where nothing had been trained then.
        """
        self._random = random_state.take()

    @contextlib.contextmanager
    def _as_then(self) -> Iterator[None]:
        """While it lasts, what is passed by draws what it drew in the script's earlier run."""
        if self.draws_on:
            yield
            return
        now, passed = random_state.take(), self._random
        random_state.give(passed)
        try:
            with self._plan.orders.replays():
                yield
            passed = random_state.take()
        finally:
            # What pipelines draw from they go on with, as far ahead as TensorFlow likes.
            random_state.give_but(now, Drawn.by_pipelines if self._reads_pipelines else set())
        if Drawn.any and not are_equal(passed, random_state.take()):
            repeatable.warn_of_draws()

    def _where(self, kept: Snapshot) -> other_batches.ResumePoint:
        place, values = kept.place, kept.values
        then = values.get("reads", {})
        found = other_batches.where(
            then,
            self._plan.reads,
            step=then.get("step", place.step),
            epochs=place.epoch - self._first_epoch,
            trained=values["trained"] and not values.get("stopped", False),
        )
        if not found.doubt and (others := self._others(kept)):
            found = found._replace(doubt=f"{others} not what the script had passed before")
        tell_doubt(found, "model.fit, x")
        return found

    def _others(self, kept: Snapshot) -> str:
        """Which arrays are other ones than when the state was kept, and a verb; "" for none.

        A person may begin an epoch with other data. A job does not, by itself.
        """
        arrays, sketches = kept.arrays, self._plan.sketches
        within = kept.place.step > 0 and not kept.values["trained"]
        if sketches is None or "data exact" not in arrays or not (within or world().round):
            return ""
        exact = np.stack([arrays["data exact"], sketches[0]])
        names = alike.differing(exact, np.stack([arrays["data values"], sketches[1]]))
        names = [name for name in names if name != "validation_data"]
        verb = "is" if len(names) == 1 else "are"
        return f"{' and '.join(names)} of model.fit {verb}" if names else ""

    def _passing(self, kept: Snapshot, epochs: int, **more: Any) -> Resume:
        train, validation = stand_of(kept)
        random_state.know_drawn(kept.values, kept.arrays, self._plan.orders)

        def after_epoch(epoch: int) -> None:
            self._validations.pass_by(self._first_epoch + epoch)
            if epoch + 1 == epochs:
                self._validations.check(validation)

        return Resume(
            epochs=epochs,
            begun=train,
            passing=self._as_then,
            after_epoch=after_epoch,
            **more,
        )


def tell_doubt(at: other_batches.ResumePoint, where: str) -> None:
    """Says that samples will be trained twice or not at all.

    A job that others depend on goes on when workers come and go, and says so; a person who has
    just started one can do something about it.

    Raises:
      TfrunError: TFRUN-617.
    """
    if at.doubt and world().round == 0:
        raise errors.other_place(at.doubt, where)
    if at.doubt:
        errors.doubt_place(at.doubt)


def stand_of(kept: Snapshot) -> Stand:
    """The `FitData.stand` when a state was kept; None for what nobody knows."""
    return kept.values.get("begun") or [None, None]


class _Validations:
    """What one `fit` validates with, where that has a memory: a pipeline, a generator."""

    def __init__(
        self, model: Any, arguments: Mapping[str, Any], plan: FitPlan, *, on_servers: bool
    ) -> None:
        self._model, self._arguments, self._plan = model, arguments, plan
        given = arguments.get("validation_data")
        self._data = data_adapter_utils.unpack_x_y_sample_weight(given) if given else (None,) * 3
        self.given = x = self._data[0]
        exact = x is None or isinstance(x, Dataset) or can_convert_arrays(self._data)
        self.has_memory = not (exact or on_servers)

    @property
    def stand(self) -> list[int] | None:
        """How often the data has been begun, see `Passes.stand`; None before it has."""
        iterator = getattr(self._model, "_eval_epoch_iterator", None)
        return iterator.passes.stand if iterator is not None and self.has_memory else None

    def pass_by(self, epoch: int) -> None:
        """Goes past the validation of an epoch that is done, in the way in which it was run."""
        model = self._model
        if not self.has_memory or not model._should_eval(
            epoch, self._arguments.get("validation_freq", 1)
        ):
            return
        if getattr(model, "_eval_epoch_iterator", None) is None:
            model._eval_epoch_iterator = self._iterator()
        iterator = model._eval_epoch_iterator
        if iterator.epoch == epoch:  # this process was in it
            return
        model._maybe_symbolic_build(iterator=iterator)  # `evaluate` looks at a batch each time
        iterator.draws_in(self._plan.orders)
        iterator.reset()
        iterator.pass_by()
        self.begins(epoch)

    def begins(self, epoch: int) -> None:
        """The validation of an epoch begins, or was passed by."""
        if self.has_memory:
            self._plan.validation = self._model._eval_epoch_iterator
            self._plan.validation.draws_in(self._plan.orders)
            self._plan.validation.validates_in(epoch)

    def goes_on(self, kept: Snapshot | None) -> None:
        """Goes on with what this process has begun, if it has: see `FitData.training_begins`."""
        if (iterator := self._plan.validation) is None:
            return
        self._model._eval_epoch_iterator = iterator
        epoch = kept.place.epoch if kept is not None and kept.values["trained"] else None
        iterator.again(wanted=epoch is not None and iterator.epoch == epoch)

    def is_over(self) -> None:
        """The validation that has begun last is not done again."""
        if self._plan.validation is not None:
            self._plan.validation.forget()

    def rehearse(self) -> None:
        """Makes one step of it, unless that would take something away from it."""
        x = self._data[0]
        if x is None or (self.has_memory and not repeatable.gives_the_same(x)):
            return
        model = self._model
        model.make_test_function()
        for _, _, iterator in self._iterator():
            model.test_function(iterator)
            return

    def check(self, expected: list[int] | None) -> None:
        """Refuses to validate with another pass over the data than the script's earlier run.

        Args:
          expected: the stand there; None where nobody knows.

        Raises:
          TfrunError: TFRUN-615.
        """
        iterator = getattr(self._model, "_eval_epoch_iterator", None)
        if iterator is not None and self.has_memory:
            iterator.passes.check(expected, "the validation data")

    def _iterator(self) -> Any:
        """As keras's `fit` makes it (backend/tensorflow/trainer.py)."""
        x, y, weights = self._data
        given = self._arguments
        return trainer.TFEpochIterator(
            x=x,
            y=y,
            sample_weight=weights,
            batch_size=given.get("validation_batch_size") or given.get("batch_size"),
            distribute_strategy=self._model.distribute_strategy,
            steps_per_execution=self._model.steps_per_execution,
            steps_per_epoch=given.get("validation_steps"),
            shuffle=False,
        )
