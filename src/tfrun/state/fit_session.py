"""Runs one `fit` that may be cut off: keeps its state, goes on from it, passes by what is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfrun.data.keras.fit_plan import FitPlan
from tfrun.data.ledger import writer as ledger
from tfrun.engine import commit as commits
from tfrun.engine import initial_values, optimizer_shards, state_slots, variable_values
from tfrun.engine.trained_model import build_first, resume_with_logs
from tfrun.job import reports
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import settings
from tfrun.job.world import why_not_stay, world
from tfrun.process import channel, progress
from tfrun.process.peers_left import PeersLeft
from tfrun.state import callback_memory, finished_calls, leave_round, plain_data, random_state
from tfrun.state.callback_memory import Memory
from tfrun.state.callback_state import acts_before_steps, append_to_logs
from tfrun.state.durable_checkpoints import Saved
from tfrun.state.fit_data import FitData, stand_of
from tfrun.state.fit_keeper import FitKeeper, iterations_of
from tfrun.state.reached_values import runs_in_python
from tfrun.state.session import GoesOn, Meter
from tfrun.state.snapshot import Snapshot
from tfrun.state.staying_session import StayingSession

_PAST = (
    "the state that fit continues from has already been trained for {} epochs, and fit is to end "
    "after {}: the weights are restored, and nothing is trained"
)


class SessionCallback(keras.callbacks.LambdaCallback):
    """Tells a session what happens in its `fit`."""


class FitSession(StayingSession):
    """What recovery has to do with one `fit`."""

    keeps: ClassVar[type[FitKeeper]] = FitKeeper

    def __init__(
        self,
        model: Any,
        strategy: Any | None,
        call: inspect.BoundArguments,
        plan: FitPlan,
        folder: Path,
        meter: Meter,
        goes_on: GoesOn | None = None,
    ) -> None:
        super().__init__(strategy, folder, meter, self._saved_model, goes_on)
        self._model, self._plan = model, plan
        self._data = call.arguments.get("x")
        self._end: int = call.arguments.get("epochs") or 1
        self._reads = FitData(
            model, call.arguments, plan, on_servers=self.on_servers, stayed=self._stayed
        )
        self._kept = goes_on.state if goes_on else None  # the state, until it is given back
        self._begun_with: list[tuple[Any, tf.Tensor]] = []  # before callbacks saw it begin
        self._memory: Memory | None = None  # of the callbacks
        self._together = 1  # steps of the last execution
        self._progress = None if self.on_servers else progress.own()

    # --- calls that are done -----------------------------------------------------------------

    def replay(self, callbacks: Sequence[Any], build: Callable[[], Any]) -> Any | None:
        """What the call has returned; None when nobody has kept it, and it has to run again."""
        done = self.left()
        if done is None:
            return None
        # Another `fit` may go on in the same data.
        self._reads.pass_by(done, len(done.values["epoch"]))
        memory = Memory(callbacks, self._model, self._data)
        history = finished_calls.replay(memory, done, self._model, callbacks, self._data, build)
        self.passed_by(iterations_of(self._model))
        return history

    def keep_result(self, history: Any, callbacks: Sequence[Any]) -> None:
        """Keeps what the call has returned."""
        ledger.settle()

        memory = self._memory
        assert memory is not None

        def left() -> Snapshot | None:
            read = self._data, self._reads
            return finished_calls.of_fit(memory, self._model, history, callbacks, *read)

        self.record(left, self._iterations(), models=[self._model])
        callback_memory.forget()
        optimizer_shards.end(self._model, self._strategy)

    @property
    def is_shared(self) -> bool:
        return optimizer_shards.of_model(self._model) is not None

    # --- the call that runs ------------------------------------------------------------------

    def arrange(self, callbacks: list[Any], executed: Callable[[int], int]) -> list[Any]:
        """Returns the callbacks between two that keep the state, ready to resume.

        Args:
          callbacks: all others.
          executed: gives the steps of the epoch that are done, of the number of the last one.
        """
        self._kept, self._callbacks = self.begin(), callbacks
        self._memory = callback_memory.of_call(self.number, callbacks, self._model, self._data)
        self._memory.stayed = self._stayed
        initial_values.make_alone(wanted=not self.why_not_stay())
        if self._kept is not None:
            self._at = self._reads.go_on(self._kept)
            build_first(self._model, True)
            append_to_logs(callbacks, self._kept.place.epoch)
        watched = {}
        self._is_eager = runs_in_python(self._model)
        if any(map(acts_before_steps, callbacks)) or self._is_eager:
            watched["on_train_batch_begin"] = lambda batch, logs=None: self.callbacks_see_step()
        first = SessionCallback(
            **watched,
            on_train_begin=lambda logs=None: self.callbacks_begin(),
            on_epoch_begin=lambda epoch, logs=None: self.epoch_begins(epoch, before=True),
            on_train_batch_end=lambda batch, logs=None: self.step_returned(executed(batch), logs),
            on_test_begin=lambda logs=None: self.evaluation_begins(),
            on_test_batch_begin=lambda batch, logs=None: self.evaluation_step_begins(),
            on_test_batch_end=lambda batch, logs=None: self.evaluation_step_returned(),
            on_test_end=lambda logs=None: self.evaluation_ends(),
            on_epoch_end=lambda epoch, logs=None: self.epoch_trained(),
        )
        last = SessionCallback(
            on_train_begin=lambda logs=None: self.train_begins(),
            on_epoch_begin=lambda epoch, logs=None: self.epoch_begins(epoch, before=False),
            on_train_batch_begin=lambda batch, logs=None: self.step_begins(),
            on_train_batch_end=lambda batch, logs=None: self.step_ended(),
            on_epoch_end=lambda epoch, logs=None: self.epoch_ended(epoch),
        )
        return [first, *callbacks, last]

    def callbacks_begin(self) -> None:
        """Callbacks are about to see the training begin; those of who has stayed, once more.

        And an epoch that had begun. What they do to variables then they have done before.
        """
        if self._kept is None or not self._stayed:
            return
        every = variable_values.all_variables(self._model).values()
        mine = [one for one in every if not isinstance(one, state_slots.Slot)]
        self._begun_with = list(zip(mine, variable_values.hold(mine), strict=True))

    def train_begins(self) -> None:
        """The model is built, and its metrics; its train function is not traced yet."""
        if self._goes_on is not None and self._goes_on.waits:
            self._wait_for_a_place()
        model = self._model
        if self._strategy is not None:
            optimizer_shards.begin(model, self._strategy)
        commit = None if self._strategy is None else commits.of_model(model)
        own = self._callbacks, self._memory
        self.keeper = self.keeps(model, commit, *own, self._plan, call=self.number)
        if self._progress:
            self._progress.begins()
        self._plan.data_ended = self._data_ended
        self._count()
        self._say_whether_it_stays(self.why_not_stay())
        self.watch_tracing()
        if not settings().rehearses:
            self.watch_steps()
        kept = self._kept
        self._reads.training_begins(kept)
        build_first(self._model, False)
        if kept is not None:
            self._model._initial_epoch = kept.place.epoch  # as BackupAndRestore does
            resume_with_logs(self._model, plain_data.decode(kept.values["logs"], kept.arrays))
            if kept.place.epoch >= self._end:  # no epoch begins
                self._go_on(self.keeper, kept)
                if world().is_chief:
                    text = _PAST.format(kept.place.epoch, self._end)
                    channel.emit(reports.WorkerNotice(text=text))

    def epoch_begins(self, epoch: int, *, before: bool) -> None:
        """Restores the state before or after the callbacks see the epoch begin, as it was kept."""
        kept, keeper = self._kept, self.keeper
        assert keeper is not None
        if kept is None and before:
            keeper.begun = self._reads.stand
        if kept is not None and kept.values["began"] != before:
            self._go_on(keeper, kept)
        if not before:
            with self.changing:
                if kept is None or not kept.values["began"]:
                    keeper.epoch_begins(epoch)
                    return
                # What they hold now is not that where the data of who stays has drawn ahead.
                random = random_state.decode(kept.values["random"], kept.arrays)
                trained = kept.values["trained"]
                keeper.epoch_begins(epoch, kept.place.step, random, trained=trained)

    def _go_on(self, keeper: FitKeeper, kept: Snapshot) -> None:
        begun_with, self._begun_with = self._begun_with, []
        for variable, value in begun_with:  # what is not kept is there alone
            (now,) = variable_values.hold([variable])
            if not np.array_equal(now, value):
                variable_values.assign(variable, np.asarray(value))
        self._reads.random_is_put_back()
        keeper.restore(kept, random=not self._reads.draws_on)
        keeper.goes_on(kept.place, self._at)
        keeper.begun = stand_of(kept)
        self._model.stop_training = kept.values.get("stopped", False)
        keeper.logs = plain_data.decode(kept.values["logs"], kept.arrays)
        self._kept = None
        self._count()
        if self._goes_on is not None:
            self.joins()
        self.resumed(kept, self._steps)

    def callbacks_see_step(self) -> None:
        """Callbacks of the script's own are about to see the next step begin."""
        if self._plan.drawn.is_read:
            self._plan.drawn.runs("callbacks")
        if self._recovers and self.keeper is not None:
            with self.changing:
                self.keeper.callbacks_see_step()

    def step_begins(self) -> None:
        assert self.keeper is not None and self._training is not None
        if self._plan.drawn.is_read:
            self._plan.drawn.runs("step" if self._is_eager else "")
        if self.has_stepped:  # as there, in fewer calls: it is each step's
            self._training.moves()
        else:
            super().step_begins()
        if self._recovers:
            with self.changing:
                pace = self._plan.pace
                self.keeper.per_execution = pace.steps if pace else self._model.steps_per_execution
                self.keeper.step_begins()
        if self._progress:
            self._progress.step_begins()
        self._meter.begins()
        self._in_step = True

    def step_returned(self, done: int, logs: dict[str, Any] | None) -> None:
        assert self.keeper is not None and self._training is not None
        if self._plan.drawn.is_read:
            self._plan.drawn.runs("callbacks")
        self._in_step = False
        self._together = done + self.keeper.ahead - self.keeper.place.step
        self._meter.returned(self._together)
        self._steps += self._together
        if self._progress:
            self._progress.step_returned(self._steps)
        if self._plan.pace is not None:
            self._plan.pace.stands_at(self._steps)
        with self.changing:
            self.keeper.step_returned(done, logs)
            self._training.moves()

    def evaluation_begins(self) -> None:
        assert self.keeper is not None
        self.epoch_trained()
        self._reads.validation_begins(self.keeper.place.epoch)
        self._meter.evaluation_begins()

    def evaluation_ends(self) -> None:
        self._meter.evaluation_ends()
        self.epoch_trained()

    def evaluation_step_begins(self) -> None:
        if self._progress:
            self._progress.step_begins("evaluate")

    def evaluation_step_returned(self) -> None:
        if self._progress:
            self._progress.step_returned()
        if self._said == "" and (why := self._reads.why_not_again):
            self._say_whether_it_stays(why)
        leave_round.leave_if_told()  # a validation may need nobody for long
        self.save_if_wanted()

    def step_ended(self) -> None:
        """All callbacks have seen the step end."""
        assert self.keeper is not None
        if self._plan.drawn.is_read:
            self._plan.drawn.runs("")
        if self._said == "" and (why := why_not_stay()):  # a step, or a callback, has shown it
            self._say_whether_it_stays(why)
        place, logs = self.keeper.place, self.keeper.logs
        if (self._tells_step or not self.has_stepped) and not settings().rehearses:
            self._tells_step = False
            self.first_steps(place, self._iterations(), self._together)
        done = place.step - self.keeper.ahead
        made, step = self._together, self._steps
        if settings().rehearses:
            self._reads.rehearse_validation()
            error = tf.errors.UnavailableError(None, None, "all is traced: others have its place")
            raise PeersLeft from error
        try:
            self.after_steps(epoch=place.epoch, in_epoch=done, step=step, made=made, logs=logs)
        except PeersLeft as error:  # others come, or a machine goes
            self.go_on_here(error)

    def epoch_trained(self) -> None:
        """The epoch's steps are done; what comes has its own time."""
        assert self.keeper is not None
        self._meter.rests()
        if self._progress:
            self._progress.pause()
        with self.changing:
            self.keeper.epoch_trained()
            self.rests()

    def _data_ended(self) -> None:
        """A data set of the script's knows that the epoch has ended, and may have drawn."""
        if self._kept is None:
            self.epoch_trained()

    def epoch_ended(self, epoch: int) -> None:
        assert self.keeper is not None
        last = self._model.stop_training or epoch + 1 >= self._end
        with self.changing:
            if not last:
                self.keeper.begun = self._reads.stand
                self._reads.epoch_is_over()
            self.keeper.epoch_ended(epoch, last=last)
        leave_round.leave_if_told()
        if self._said:
            self._say_whether_it_stays(self.why_not_stay())
        self.save_if_due(self._steps, epoch_ended=True)

    def _saved_model(self) -> Saved:
        model = self._model
        found = variable_values.state_variables(model)
        optimizer = getattr(model, "optimizer", None)
        return Saved(model=model, optimizer=optimizer, variables=found)

    def failed(self, error: BaseException) -> None:
        """Keeps the state when a peer's end has cut the call off.

        Raises:
          PeersLeft: it has; no `except Exception` of the script is to hold the next round up.
        """
        if not is_peer_error(type(error).__name__, str(error)):
            return
        self.keep()
        raise PeersLeft from error

    def close(self) -> None:
        """Takes back what `fit` was told."""
        self._meter.closes()
        super().close()
        if self._progress:
            self._progress.other()
        self._model._initial_epoch = 0
        resume_with_logs(self._model, None)

    def _count(self) -> None:
        self._steps = self._iterations()
        if self._plan.pace is not None:
            self._plan.pace.stands_at(self._steps)

    def _iterations(self) -> int:
        return self.keeper.iterations() if self.keeper else 0
