"""One `fit` of a script that may be cut off and run again: kept, left, resumed, passed by."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras

from tfrun.data.ledger import writer as ledger
from tfrun.data.order import resume
from tfrun.data.order.other_batches import Where
from tfrun.engine import commit as commits
from tfrun.engine import counting, step_clock, variable_values
from tfrun.engine.keras_trainer import build_first, resume_with_logs
from tfrun.engine.sync_check import check_in_sync
from tfrun.job.first_failure import is_peer_error
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.process.peers_left import PeersLeft
from tfrun.state import agreement, finished_calls, fit_keeper, leaving, preemption, snapshot
from tfrun.state import numbered_calls as calls
from tfrun.state.callback_state import inner
from tfrun.state.durable_checkpoints import Saved, bring_back, durable
from tfrun.state.snapshot import Snapshot
from tfrun.state.snapshots_due import interval
from tfrun.train import steps_per_execution as pacing
from tfrun.train.chief_callbacks import append_to_logs, set_initial_epoch
from tfrun.train.fit_data import FitData, stand_of
from tfrun.train.fit_report import StepCounter
from tfrun.train.step_meter import StepMeter
from tfrun.train.steps_per_execution import Pace


class Session:
    """What recovery has to do with one `fit`.

    Args:
      model: the model.
      strategy: its multi-worker strategy, None for one worker alone.
      call: `fit`'s arguments.
      folder: this machine's snapshots.
      on_servers: the state is on parameter servers, and only checkpoints keep it.
    """

    def __init__(
        self,
        model: Any,
        strategy: Any | None,
        call: inspect.BoundArguments,
        folder: Path,
        *,
        on_servers: bool = False,
    ) -> None:
        self._model, self._strategy, self._folder = model, strategy, folder
        self._number = calls.begin()
        self._data = call.arguments.get("x")
        self._reads = FitData(model, call.arguments, on_servers=on_servers)
        self._callbacks: Sequence[Any] = ()
        self._keeper: fit_keeper.Keeper | None = None
        self._kept: Snapshot | None = None
        self._at = Where(0)  # the place of `_kept` in the data
        self._training: preemption.Training | None = None
        self._periodic, self._recovers = interval(), snapshot.recovers()
        self._target = calls.target(strategy, folder, on_servers=on_servers)
        self._stepped = False
        self._steps = 0  # counted here: to ask the optimizer takes longer than all else at a step
        self._together = 1  # steps of the last execution
        self._pace: Pace | None = None
        self._progress = progress.own()
        self._meter = StepMeter(step_clock.of(strategy), fetches=True)

    # --- calls that are done -----------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """True when the script's earlier run has finished this call."""
        return self._target is not None and self._number < self._target.call

    def replay(self, callbacks: Sequence[Any], build: Callable[[], Any]) -> Any | None:
        """What the call has returned; None when nobody has kept it, and it has to run again."""
        ledger.training_is_done()
        path = finished_calls.path_of(self._folder, self._number)
        bring_back(path)
        done = agreement.fetch(self._strategy, path, has=path.exists())
        if done is None:
            return None
        if (saving := durable()) is not None:
            saving.keep_missing_call(path)
        # Another `fit` may go on in the same data.
        self._reads.pass_by(done, len(done.values["epoch"]))
        history = finished_calls.replay(done, self._model, callbacks, self._data, build)
        step = fit_keeper.iterations_of(self._model)
        calls.passed_by(self._number, step, self._strategy, self._folder)
        return history

    def record(self, history: Any, callbacks: Sequence[Any]) -> None:
        """Keeps what the call has returned."""
        ledger.settle()
        if self._recovers or durable() is not None:
            self._record(history, callbacks)
        if os.environ.get("TFRUN_DRILL") and world().is_chief:
            digest = variable_values.digest(variable_values.state_variables(self._model).values())
            channel.emit("weights", call=self._number, digest=digest)

    def _record(self, history: Any, callbacks: Sequence[Any]) -> None:
        number, read = self._number, (self._data, self._reads.stand)
        finished_calls.record(self._folder, number, self._model, history, callbacks, *read)
        path = finished_calls.path_of(self._folder, self._number)
        if (saving := durable()) is not None:
            saving.keep_call(path)
        channel.emit("snapshot", key=[self._number + 1, 0, 0], step=self._iterations(), seconds=0.0)

    # --- the call that runs ------------------------------------------------------------------

    def arrange(self, callbacks: list[Any]) -> list[Any]:
        """Returns the callbacks between two that keep the state, ready to resume."""
        target, self._pace = self._target, pacing.of(self._model)
        self._training = preemption.Training(self._saved, self._state_aside)
        if target is not None and target.call == self._number:
            path = snapshot.path_of(self._folder, target)
            self._kept = agreement.fetch(self._strategy, path, has=path.exists())
            if self._kept is not None:
                self._training.rests(lambda: preemption.read(path))
        self._callbacks = callbacks
        if self._kept is not None:
            self._at = self._reads.go_on(self._kept)
            build_first(self._model, True)
            append_to_logs(map(inner, callbacks), self._kept.place.epoch)
        counter = next(one for one in callbacks if isinstance(one, StepCounter))
        return [_First(self, counter), *callbacks, _Last(self)]

    def train_begins(self) -> None:
        """The model is built, and its metrics; its train function is not traced yet."""
        self._keeper = fit_keeper.Keeper(
            self._model,
            None if self._strategy is None else _commit(self._model),
            self._callbacks,
            call=self._number,
            reads=self._reads.reads,
        )
        if self._progress:
            self._progress.begins()
        self._count()
        kept = self._kept
        build_first(self._model, False)
        if kept is not None:
            set_initial_epoch(self._model, kept.place.epoch)
            resume_with_logs(self._model, snapshot.decode(kept.values["logs"], kept.arrays))

    def epoch_begins(self, *, before: bool) -> None:
        """Restores the state before or after the callbacks see the epoch begin, as it was kept."""
        kept = self._kept
        if self._keeper is not None and kept is None and before:
            self._keeper.begun = self._reads.stand
        if kept is None or self._keeper is None or kept.values["began"] == before:
            return
        self._reads.random_is_put_back()
        self._keeper.restore(kept)
        self._keeper.goes_on(kept.place, self._at)
        self._keeper.begun = stand_of(kept)
        self._model.stop_training = kept.values.get("stopped", False)
        self._keeper.logs = snapshot.decode(kept.values["logs"], kept.arrays)
        if (saving := durable()) is not None:
            saving.prepare(self._saved())  # here, not while a step is being traced
            saving.resumes(self._number, self._iterations())
        if self._strategy is not None:
            # Before the first step: a state that differs between workers must not be trained on.
            check_in_sync(variable_values.state_variables(self._model).items())
        self._kept = None
        self._count()
        leaving.say_resumed(kept.place, self._steps)

    def changing(self) -> contextlib.AbstractContextManager[object]:
        """While it lasts no other thread takes the state."""
        assert self._training is not None
        return self._training.changing()

    def step_begins(self) -> None:
        assert self._keeper is not None and self._training is not None
        if self._stepped:  # the first one is traced, for who knows how long
            self._training.moves()
        if self._recovers:
            with self._training.changing():
                pace = self._pace
                self._keeper.per_execution = pace.steps if pace else self._model.steps_per_execution
                self._keeper.step_begins()
        if self._progress:
            self._progress.step_begins()
        self._meter.begins()

    def step_returned(self, done: int, logs: dict[str, Any] | None) -> None:
        assert self._keeper is not None and self._training is not None
        self._together = done + self._keeper.ahead - self._keeper.place.step
        self._meter.returned(self._together)
        self._steps += self._together
        if self._progress:
            self._progress.step_returned(self._steps)
        if self._pace is not None:
            self._pace.stands_at(self._steps)
        with self._training.changing():
            self._keeper.step_returned(done, logs)
            self._training.moves()

    def evaluation_begins(self) -> None:
        self.epoch_trained()
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

    def step_ended(self) -> None:
        """All callbacks have seen the step end."""
        assert self._keeper is not None and self._training is not None
        if not self._stepped:
            self._stepped = True
            leaving.say_stepped(self._keeper.place, self._iterations(), self._together)
        place, logs = self._keeper.place, self._keeper.logs
        done = place.step - self._keeper.ahead
        self._meter.ended(epoch=place.epoch, in_epoch=done, step=self._steps, logs=logs)
        if self._periodic.due(self._together) and world().local_rank == 0:
            self._write(self._keeper.state())
        self._save_if_due(epoch_ended=False)
        leaving.leave_to_regroup(self._keep)

    def epoch_trained(self) -> None:
        """The epoch's steps are done; what comes has its own time."""
        assert self._keeper is not None and self._training is not None
        self._meter.rests()
        if self._progress:
            self._progress.pause()
        with self._training.changing():
            self._keeper.epoch_trained()
            if self._stepped:
                self._training.rests(self._keeper.state)

    def epoch_ended(self, epoch: int, *, last: bool) -> None:
        assert self._keeper is not None and self._training is not None
        with self._training.changing():
            if not last:
                self._keeper.begun = self._reads.stand
            self._keeper.epoch_ended(epoch, last=last)
        self._save_if_due(epoch_ended=True)

    def save_if_wanted(self) -> None:
        """Between any two steps: the system may want the machine back."""
        if self._keeper is not None and self._training is not None:
            self._training.at_boundary(self._keeper.state)

    def _save_if_due(self, *, epoch_ended: bool) -> None:
        self.save_if_wanted()
        saving = durable()
        if saving is None or self._keeper is None:
            return
        if saving.is_due(self._number, self._steps, epoch_ended=epoch_ended):
            with self._meter.aside("checkpoint"):
                kept = self._keeper.state()
                if kept is not None:
                    saving.submit(self._saved(), kept)

    def _saved(self) -> Saved:
        model = self._model
        found = variable_values.state_variables(model)
        optimizer = getattr(model, "optimizer", None)
        return Saved(model=model, optimizer=optimizer, variables=found)

    def failed(self, error: BaseException) -> None:
        """Keeps the state when a peer's end has cut the call off.

        Raises:
          PeersLeft: it has; no `except Exception` of the script is to hold the next round up.
        """
        if not is_peer_error({"type": type(error).__name__, "message": str(error)}):
            return
        self._keep()
        raise PeersLeft from error

    def _state_aside(self) -> Snapshot | None:
        return self._keeper.state_aside() if self._keeper and self._recovers else None

    def _keep(self) -> None:
        leaving.keeping()
        if self._recovers:
            kept = self._keeper.state() if self._keeper else None
            self._write(kept)
            if self._training is not None and kept is not None:
                self._training.at_boundary(lambda: kept)

    def _write(self, kept: Snapshot | None) -> None:
        """Writes a snapshot and says so."""
        if kept is not None:
            with self._meter.aside("checkpoint"):
                # Where there is no room, each step would try.
                self._periodic.done(snapshot.write_and_tell(self._folder, kept))

    def close(self) -> None:
        """Takes back what `fit` was told."""
        self._meter.closes()
        if self._training is not None:
            self._training.close()
        if self._progress:
            self._progress.other()
        resume.request(None)
        set_initial_epoch(self._model, 0)
        resume_with_logs(self._model, None)

    def _count(self) -> None:
        self._steps = self._iterations()
        if self._pace is not None:
            self._pace.stands_at(self._steps)

    def _iterations(self) -> int:
        return self._keeper.iterations() if self._keeper else 0


class _First(keras.callbacks.Callback):
    def __init__(self, session: Session, counter: StepCounter) -> None:
        super().__init__()
        self._session, self._counter = session, counter

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._session.epoch_begins(before=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._session.step_returned(self._counter.executed(batch), logs)

    def on_test_begin(self, logs: Any = None) -> None:
        self._session.evaluation_begins()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._session.evaluation_step_begins()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._session.evaluation_step_returned()
        self._session.save_if_wanted()

    def on_test_end(self, logs: Any = None) -> None:
        self._session.evaluation_ends()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epoch_trained()

    def _epoch_trained(self) -> None:
        self._session.epoch_trained()


class _Last(keras.callbacks.Callback):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def on_train_begin(self, logs: Any = None) -> None:
        self._session.train_begins()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        kept, kept_by = self._session._kept, self._session._keeper
        self._session.epoch_begins(before=False)
        assert kept_by is not None
        with self._session.changing():
            kept_by.epoch_begins(epoch, kept.place.step if kept and kept.values["began"] else 0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._session.step_begins()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._session.step_ended()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        model: Any = self.model
        last = model.stop_training or epoch + 1 >= (self.params or {}).get("epochs", 0)
        self._session.epoch_ended(epoch, last=last)


def _commit(model: Any) -> commits.Commit:
    """The model's commit, with a train function that is traced with it."""
    made, is_new = counting.commit_for(
        variable_values.optimizers_of(model), model.metrics_variables
    )
    if is_new:
        model.make_train_function(force=True)
    return made
