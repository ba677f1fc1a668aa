"""`tfrun.TrainState`: a custom training loop that goes on where it was when workers die."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, replace
from types import FrameType
from typing import Any

from tfrun.data import errors
from tfrun.data.ledger import writer as ledger
from tfrun.engine import commit as commits
from tfrun.engine import loop_calls, optimizer_shards, scaled_rate, step_clock
from tfrun.engine.agree import multi_worker_strategy
from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.process.peers_left import PeersLeft
from tfrun.state import leave_round, numbered_calls, train_state_parts
from tfrun.state.durable_checkpoints import Saved
from tfrun.state.loop_keeper import LoopKeeper, LoopProgress
from tfrun.state.snapshot import Place, Snapshot
from tfrun.state.staying_loop import StayingLoop
from tfrun.train import learning_rate, readers, sync_checks, trial
from tfrun.train.fit_report import tell_training
from tfrun.train.step_meter import StepMeter


class TrainState:
    """The state of a custom loop, and how far it has come.

    When a worker dies the script runs again from the top; this object then gives the model, the
    optimizer, metrics, objects and random generators their values back, and `steps` begins where
    the loop stood. Outside a tfrun job it keeps nothing and is an iterator with counters. Make it
    after the model is built and before the first training step is traced.

    Args:
      model: a built Keras model, or a list or dictionary of all that the loop changes.
      optimizer: a Keras optimizer, likewise.
      metrics: Keras metrics that add up over several steps. Update them before the optimizer:
        what a worker has added after its last update is lost when it dies.
      **objects: objects of the script's own with `get_state()`, which returns plain data and
        arrays, and `set_state(state)`. With any, each step keeps a copy of all variables.

    Raises:
      UsageError: TFRUN-508 where there is no built model, no optimizer, or an object cannot say
        what it remembers.
      TfrunError: TFRUN-504, TFRUN-507 where the state does not fit the script that runs again,
        TFRUN-519 where a `fit` has shared the optimizer among the workers.

    Example:
        ```python
        state = tfrun.TrainState(model=model, optimizer=optimizer)
        for batch in state.steps(dataset, epochs=3):
            train_step(batch)
        ```
    """

    def __init__(self, *, model: Any, optimizer: Any, metrics: Any = (), **objects: Any) -> None:
        self._parts = train_state_parts.collect(model, optimizer, metrics, objects)
        self._strategy = multi_worker_strategy(self._parts.models[0])
        if self._strategy is not None:
            optimizer_shards.refuse_in_loop(self._parts.optimizers)
        self._progress, self._after = LoopProgress(), LoopProgress()
        self._kept: dict[str, tuple[int, ...]] = {}  # where to begin in each dataset
        self._in_step = self._is_done = self._is_closed = self._is_known = False
        strategy = self._strategy or train_state_parts.strategy_of(self._parts.models[0])
        self._shown = progress.own()
        self._sync_every = settings().sync_check if self._strategy is not None else 0
        self._meter = StepMeter(step_clock.of(self._strategy), fetches=False)
        running = trial.running()
        self._trial = trial.LoopSteps(running, self._parts) if running else None
        folder, is_apart = settings().state_path, self._strategy is None and world().size > 1
        self._session: StayingLoop | None = None
        if folder is not None and not is_apart:  # else workers have no state in common
            self._session = StayingLoop(self._strategy, folder, self._meter, self._saved)
            self._open(self._session)
        self._calls = loop_calls.of(strategy)  # of the place that a successor has been given
        if self._calls is not None and self._session is not None:
            self._calls.begin, self._calls.again = self._calls_begin, self._again
            self._calls.goes_on = self._goes_on
            self._calls.turns.when_traced = self._keeper.has_traced

    # --- how far it has come -------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Steps that are done, over all epochs."""
        return self._progress.step

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self._progress.epoch

    @property
    def step_in_epoch(self) -> int:
        """Steps of the present epoch that are done."""
        return self._progress.step_in_epoch

    # --- the loop ------------------------------------------------------------------------------

    def steps(self, dataset: Any, *, epochs: int) -> Iterator[Any]:
        """Yields the batches that are left until `epochs` epochs are done in all.

        A step is done when its update is applied. What the loop's body does before that is done
        again after a failure; what it does later in the body is not, unless the whole step is.

        Args:
          dataset: a `tfrun.Dataset`, a `tf.data.Dataset`, or one that the strategy has
            distributed. Each iteration over it is an epoch.
          epochs: number of epochs in all, including those that were done before this call.

        Yields:
          What iterating over `strategy.experimental_distribute_dataset(dataset)` does.

        Raises:
          UsageError: TFRUN-508 where the state is closed, TFRUN-107 with --scale-batch.

        Example:
            ```python
            for batch in state.steps(dataset, epochs=3):
                train_step(batch)
            ```
        """
        self._check_open()
        scaled_rate.check_elsewhere("TrainState.steps")
        self._finish_step()
        if self._trial is not None:
            dataset, epochs = self._trial.dataset(dataset), self._trial.epochs(epochs)
        reader = self._reader(dataset, epochs - self.epoch)
        self._runs_in(sys._getframe(1))
        if self._session is not None:
            self._session.repeat = reader.repeat if reader.in_turn else None
        if world().is_chief and not self._is_done:
            channel.emit(reports.FitBegin(epochs=epochs, steps=reader.reads.steps))
        try:
            yield from self._batches(reader, epochs)
        finally:
            if self._shown:
                self._shown.other()

    def _batches(self, reader: readers.Reader, epochs: int) -> Iterator[Any]:
        while self.epoch < epochs and not self._is_done:
            if self._session is not None:
                self._session.epoch_begins()
            for batch in self._meter.fetching(reader.epoch()):
                before = self._progress
                place = astuple(reader.place)
                self._after = replace(
                    before,
                    step=before.step + 1,
                    step_in_epoch=before.step_in_epoch + 1,
                    data={**before.data, reader.name: place},
                )
                if self._session is not None:
                    self._step_begins(self._session, self._after)
                self._in_step = True
                if self._trial is not None:
                    self._trial.step_begins()
                if self._shown:
                    self._shown.body_begins()
                self._meter.begins()
                yield batch if self._calls is None else self._calls.step_begins(batch)
                self._meter.returned()
                self._check_open()
                self._in_step = False
                if self._shown:
                    self._shown.body_ended(self._after.step)
                self._step_ended(self._after)
                if self._calls is not None:
                    self._calls.step_done()
            if self._calls is not None:
                self._calls.step_ended()
            self._meter.rests()
            if not self.step and world().in_job:
                raise errors.empty("state.steps, dataset", "at least one batch")
            if self._session is not None:
                with self._session.changing:
                    self._keeper.epoch_ended()
                    self._session.rests()
                self._session.save_if_due(self.step, epoch_ended=True)
                self._session.between_begins(self.step)
            # The next epoch's first step may be cut off: its data begins there, not at this end.
            data = {**self._progress.data, reader.name: astuple(reader.place)}
            self._progress = replace(
                self._progress, epoch=self.epoch + 1, step_in_epoch=0, data=data
            )

    def commit(self) -> None:
        """Says that a step is done, in a loop that does not use `steps`.

        Such a loop finds its place in the data by `step`.

        Raises:
          UsageError: TFRUN-508 inside `steps`, which counts for itself; or where the state is
            closed, or was done in an earlier run of the script.

        Example:
            ```python
            while state.step < 1000:
                train_step(batch_at(state.step))
                state.commit()
            ```
        """
        self._check_open()
        if self._in_step:
            raise train_state_parts.misuse("commit() was called inside steps()", "one of the two")
        if self._is_done:
            what = f"a step was done after the loop's last one, {self.step}"
            raise train_state_parts.misuse(what, "a loop that begins at `state.step`")
        if not self._is_known:
            self._runs_in(sys._getframe(1))
        self._meter.returned()
        self._step_ended(replace(self._progress, step=self.step + 1))
        if self._session is not None:
            self._awaits_commit(self._session)
        self._meter.begins()
        if self._shown:
            self._shown.committed(self.step)

    # --- its end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Says that the training is over: when the script runs again, it is not repeated.

        Also called by the end of a `with` block or of the script, and when the script's next
        training begins. Does nothing the second time.

        Example:
            ```python
            state.close()
            model.save("model.keras")
            ```
        """
        if self._is_closed:
            return
        self._finish_step()
        self._is_closed = True
        self._meter.closes()
        if self._shown:
            self._shown.other()
        if self._session is None or self._is_done:
            return
        self._session.record(self._left, self.step, models=self._parts.models)
        self._keeper.runs_in(None)
        leave_round.closed(self._session.keep)
        self._session.close()

    def __enter__(self) -> TrainState:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:  # else the state is kept where the error ends the script
            self.close()

    # -------------------------------------------------------------------------------------------

    def _open(self, session: StayingLoop) -> None:
        mine, commit = self._parts, None
        if self._shown:
            self._shown.begins()
        numbered_calls.before_next(self.close)
        if self._strategy is not None:
            commit, _ = commits.made_for(mine.optimizers, mine.metric_variables)
        session.keeper = self._keeper = LoopKeeper(mine, commit, call=session.number)
        done = session.left() if session.is_done else None
        if done is not None:  # else nobody had room for it, and it has to run again
            self._restore(done)
            self._is_done = True
            session.passed_by(self.step)
            return
        leave_round.opened(session.keep, self.close)
        kept = session.begin()
        if settings().rehearses:
            kept = session.waits_for_a_place()
        if kept is not None:
            self._restore(kept)
            session.resumed(kept, self.step)
        self._awaits_commit(session)

    def _restore(self, kept: Snapshot) -> None:
        self._keeper.restore(kept)
        self._progress = self._keeper.progress
        self._kept = dict(self._progress.data)
        readers.stood_at(self._progress.data)

    def _left(self) -> Snapshot | None:
        left = self._keeper.state()
        # What is kept of an epoch's end leads into what the script does then; that is done.
        progress = {"progress": asdict(self._progress)}
        return left and replace(left, values={**left.values, **progress})

    def _runs_in(self, caller: FrameType) -> None:
        self._is_known = True
        if self._session is not None and not self._is_done:
            self._keeper.runs_in(caller)

    def _awaits_commit(self, session: StayingLoop) -> None:
        """The loop may be one of those that say `commit`; if not, `steps` says so itself."""
        self._step_begins(session, replace(self._progress, step=self.step + 1))

    def _calls_begin(self) -> None:
        if self._session is not None and self._in_step:
            with self._session.changing:
                self._keeper.calls_begin()

    def _again(self, error: Exception) -> Any:
        """What the step that an error has cut off reads in the next round; None for no such."""
        session = self._session
        if session is None or not self._in_step:
            return None
        return session.again(error, self.step)

    def _goes_on(self, given: Callable[[Any], Any]) -> Any:
        """As `loop_calls.Calls.goes_on`."""
        if self._session is None or not self._in_step:
            return None
        return self._session.goes_on_in_step(self.step, given)

    def _step_begins(self, session: StayingLoop, after: LoopProgress) -> None:
        session.step_begins()
        with session.changing:
            self._keeper.step_begins(self._progress, after)

    def _step_ended(self, after: LoopProgress) -> None:
        self._progress, session = after, self._session
        if self._trial is not None:
            self._trial.step_ended(after.step_in_epoch)
        if self._sync_every and after.step % self._sync_every == 0:
            sync_checks.check_in_sync(self._parts.variables().items())
        if session is None:
            return
        with session.changing:
            self._keeper.step_ended(after)
            session.moves()
        if session.tells_step:
            session.tells_step = False
            place = Place(call=session.number, epoch=after.epoch, step=after.step_in_epoch)
            session.first_steps(place, self.step, 1)
        session.say_whether_it_stays()
        try:
            session.after_steps(epoch=after.epoch, in_epoch=after.step_in_epoch, step=after.step)
        except PeersLeft as error:  # others come, or a machine goes
            session.between_steps(error, self.step)

    def _saved(self) -> Saved:
        mine = self._parts
        return Saved(
            model=mine.model_as_given,
            optimizer=mine.optimizer_as_given,
            variables=mine.variables(),
        )

    def _finish_step(self) -> None:
        """A loop that was left by `break` has done its last step."""
        if self._calls is not None:
            self._calls.step_ended()
        if not self._in_step:
            return
        self._in_step = False
        ledger.settle()
        self._step_ended(self._after)
        # Its iterators have gone with it.
        self._kept = dict(self._progress.data)

    def _reader(self, dataset: Any, epochs: int) -> readers.Reader:
        """The dataset's reader, which goes on where the earlier run stood; its batch is told."""
        strategy = self._strategy or train_state_parts.strategy_of(self._parts.models[0])
        reader = readers.reader_of(dataset, strategy, epochs, in_turn=self._calls is not None)
        if not reader.in_turn:
            self._calls = None
        for optimizer in self._parts.optimizers:
            learning_rate.tell_batch(optimizer, reader.reads.batch)
        if self._session is not None and not self._is_done:
            tell_training(self._parts.optimizers[0], reader.reads, self._strategy)
        readers.go_on(reader, self._kept.pop(reader.name, None), self._progress.reads)
        reads = {**self._progress.reads, reader.name: asdict(reader.reads)}
        self._progress = replace(self._progress, reads=reads)
        return reader

    def _check_open(self) -> None:
        if self._is_closed:
            raise train_state_parts.misuse(
                "the state was closed: the script's next training has begun, or its `with` ended",
                "one training after the other",
                "Put all models and optimizers that are trained in turns into one TrainState",
            )
