"""`tfrun.TrainState`: a custom training loop that goes on where it was when workers die."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from tfrun.data import errors
from tfrun.data.ledger import writer as ledger
from tfrun.data.order import global_batch
from tfrun.data.order.position import Position
from tfrun.engine import counting, step_clock, variable_values
from tfrun.engine.agree import multi_worker_strategy
from tfrun.engine.sync_check import check_in_sync
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.state import (
    agreement,
    finished_calls,
    leaving,
    numbered_calls,
    preemption,
    snapshot,
    train_state_parts,
)
from tfrun.state.durable_checkpoints import Saved, bring_back, durable
from tfrun.state.loop_keeper import Progress, StepKeeper
from tfrun.state.snapshots_due import interval
from tfrun.train import readers, sync_checks, training_header, trial
from tfrun.train.step_meter import StepMeter

# Where the script's earlier run stood in each dataset that this run has not come to yet.
_places: dict[str, tuple[int, ...]] = {}


class TrainState:
    """The state of a custom loop, and how far it has come.

        state = tfrun.TrainState(model=model, optimizer=optimizer)
        for batch in state.steps(dataset, epochs=3):
            train_step(batch)

    When a worker dies the script runs again from the top; this object then gives the model, the
    optimizer, metrics, objects and random generators their values back, and `steps` begins where
    the loop stood. Outside a tfrun job it keeps nothing and is an iterator with counters. Make it
    after the model is built and before the first training step is traced.

    Args:
      model: a built Keras model, or a list or dictionary of all that the loop changes.
      optimizer: a Keras optimizer, likewise.
      metrics: Keras metrics that count on over steps. Update them before the optimizer: what a
        worker that dies has counted after its last update is lost.
      **objects: objects of the script's own with `get_state()`, which returns plain data and
        arrays, and `set_state(state)`. With any, each step keeps a copy of all variables.

    Raises:
      UsageError: TFRUN-508 where there is no built model, no optimizer, or an object cannot say
        what it remembers.
      TfrunError: TFRUN-504, TFRUN-507 where the state does not fit the script that runs again.
    """

    def __init__(self, *, model: Any, optimizer: Any, metrics: Any = (), **objects: Any) -> None:
        self._parts = train_state_parts.collect(model, optimizer, metrics, objects)
        self._strategy = multi_worker_strategy(self._parts.models[0])
        self._progress, self._after = Progress(), Progress()
        self._kept: dict[str, tuple[int, ...]] = {}  # where to begin in each dataset
        self._in_step = self._is_done = self._is_closed = self._has_stepped = False
        self._shown = progress.own()
        self._check_sync = sync_checks.of_loop(lambda: self._parts.variables())
        self._meter = StepMeter(step_clock.of(self._strategy), fetches=False)
        # Workers that do not train together have no state in common.
        self._folder = snapshot.state_dir()
        if self._strategy is None and world().size > 1:
            self._folder = None
        running = trial.running()
        self._trial = trial.LoopSteps(running, self._parts) if running else None
        if self._folder is not None:
            self._open(self._folder)

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
          epochs: at which number of done epochs to end, those before this call included.

        Yields:
          What iterating over `strategy.experimental_distribute_dataset(dataset)` does.

        Raises:
          UsageError: TFRUN-508 where the state is closed.
        """
        self._check_open()
        self._finish_step()
        if self._trial is not None:
            dataset, epochs = self._trial.dataset(dataset), self._trial.epochs(epochs)
        self._begin_with(dataset)
        reader = self._reader(dataset, epochs - self.epoch)
        if world().is_chief and not self._is_done:
            channel.emit("fit_begin", epochs=epochs, steps=reader.reads.steps)
        try:
            yield from self._batches(reader, epochs)
        finally:
            if self._shown:
                self._shown.other()

    def _batches(self, reader: readers.Reader, epochs: int) -> Iterator[Any]:
        while self.epoch < epochs and not self._is_done:
            for batch in self._meter.fetching(reader.epoch()):
                before = self._progress
                place = astuple(reader.place)
                self._after = replace(
                    before,
                    step=before.step + 1,
                    step_in_epoch=before.step_in_epoch + 1,
                    data={**before.data, reader.name: place},
                )
                if self._folder is not None:
                    self._step_begins(before, self._after)
                self._in_step = True
                if self._trial is not None:
                    self._trial.step_begins()
                if self._shown:
                    self._shown.body_begins()
                self._meter.begins()
                yield batch
                self._meter.returned()
                self._check_open()
                self._in_step = False
                if self._shown:
                    self._shown.body_ended(self._after.step)
                self._step_ended(self._after)
            self._meter.rests()
            if not self.step and world().in_job:
                raise errors.empty("state.steps, dataset", "at least one batch")
            if self._folder is not None:
                with self._training.changing():
                    self._keeper.epoch_ended()
                    if self._has_stepped:
                        self._training.rests(self._keeper.state)
                self._save_if_due(epoch_ended=True)
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
        """
        self._check_open()
        if self._in_step:
            raise train_state_parts.misuse("commit() was called inside steps()", "one of the two")
        if self._is_done:
            what = f"a step was done after the loop's last one, {self.step}"
            raise train_state_parts.misuse(what, "a loop that begins at `state.step`")
        self._meter.returned()
        self._step_ended(replace(self._progress, step=self.step + 1))
        if self._folder is not None:
            self._awaits_commit()
        self._meter.begins()
        if self._shown:
            self._shown.committed(self.step)

    # --- its end -------------------------------------------------------------------------------

    def close(self) -> None:
        """The training is over: a run of the script after this one passes it by.

        Also called by the end of a `with` block or of the script, and when the script's next
        training begins. Does nothing the second time.
        """
        if self._is_closed:
            return
        self._finish_step()
        self._is_closed = True
        self._meter.closes()
        if self._shown:
            self._shown.other()
        if self._folder is None or self._is_done:
            return
        left = None
        if snapshot.recovers() or durable() is not None:
            left = self._keeper.state()
        if left is not None:
            # What is kept of an epoch's end leads into what the script does then; that is done.
            values = {**left.values, "progress": asdict(self._progress)}
            left = replace(left, values=values)
            finished_calls.write(self._folder, self._number, left, models=self._parts.models)
            path = finished_calls.path_of(self._folder, self._number)
            if (saving := durable()) is not None:
                saving.keep_call(path)
            key = [self._number + 1, 0, 0]
            channel.emit("snapshot", key=key, step=self.step, seconds=0.0)
        if os.environ.get("TFRUN_DRILL") and world().is_chief:
            digest = variable_values.digest(self._parts.variables().values())
            channel.emit("weights", call=self._number, digest=digest)
        leaving.closed(self)
        self._training.close()

    def __enter__(self) -> TrainState:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:  # else the state is kept where the error ends the script
            self.close()

    def keep(self) -> None:
        """A peer's end has cut the script off: writes the snapshot. Called by tfrun."""
        leaving.keeping()
        if not snapshot.recovers():
            return
        kept = self._keeper.state()
        self._write(kept)
        if kept is not None:
            self._training.at_boundary(lambda: kept)

    # -------------------------------------------------------------------------------------------

    def _open(self, folder: Path) -> None:
        self._number = numbered_calls.begin()
        if self._shown:
            self._shown.begins()
        numbered_calls.before_next(self.close)
        strategy, mine = self._strategy, self._parts
        commit = None
        if strategy is not None:
            commit, _ = counting.commit_for(mine.optimizers, mine.metric_variables)
        self._keeper = StepKeeper(mine, commit, call=self._number)
        self._periodic = interval()
        target = numbered_calls.target(strategy, folder)
        if target is not None and self._number < target.call:
            path = finished_calls.path_of(folder, self._number)
            bring_back(path)
            done = agreement.fetch(strategy, path, has=path.exists())
            if done is not None:  # else nobody had room for it, and it has to run again
                if (saving := durable()) is not None:
                    saving.keep_missing_call(path)
                self._restore(done)
                self._is_done = True
                ledger.training_is_done()
                numbered_calls.passed_by(self._number, self.step, strategy, folder)
                return
        leaving.opened(self)
        self._training = preemption.Training(self._saved, self._state_aside)
        if target is not None and self._number == target.call:
            path = snapshot.path_of(folder, target)
            kept = agreement.fetch(strategy, path, has=path.exists())
            if kept is not None:
                self._training.rests(lambda: preemption.read(path))
                self._resume(kept)
        self._awaits_commit()

    def _resume(self, kept: snapshot.Snapshot) -> None:
        self._restore(kept)
        if (saving := durable()) is not None:
            saving.prepare(self._saved())  # here, not while a step is being traced
            saving.resumes(self._number, self.step)
        if self._strategy is not None:
            # Before the first step: a state that differs between workers must not be trained on.
            check_in_sync(self._parts.variables().items())
        leaving.say_resumed(kept.place, self.step)

    def _restore(self, kept: snapshot.Snapshot) -> None:
        self._progress = self._keeper.restore(kept)
        self._kept = dict(self._progress.data)
        _places.update(self._progress.data)

    def _awaits_commit(self) -> None:
        """The loop may be one of those that say `commit`; if not, `steps` says so itself."""
        self._step_begins(self._progress, replace(self._progress, step=self.step + 1))

    def _step_begins(self, before: Progress, after: Progress) -> None:
        if self._has_stepped:  # the first one is traced, for who knows how long
            self._training.moves()
        with self._training.changing():
            self._keeper.step_begins(before, after)

    def _step_ended(self, after: Progress) -> None:
        self._progress = after
        if self._trial is not None:
            self._trial.step_ended(after.step_in_epoch)
        if self._strategy is not None:
            self._check_sync(after.step)
        if self._folder is None:
            return
        with self._training.changing():
            self._keeper.step_ended(after)
            self._training.moves()
        if not self._has_stepped:
            self._has_stepped = True
            leaving.say_stepped((self._number, after.epoch, after.step_in_epoch), self.step, 1)
        self._meter.ended(epoch=after.epoch, in_epoch=after.step_in_epoch, step=after.step)
        if self._periodic.due() and world().local_rank == 0:
            self._write(self._keeper.state())
        self._save_if_due(epoch_ended=False)
        leaving.leave_to_regroup(self.keep)

    def _state_aside(self) -> snapshot.Snapshot | None:
        return self._keeper.state_aside() if snapshot.recovers() else None

    def _write(self, kept: snapshot.Snapshot | None) -> None:
        """Writes a snapshot and says so."""
        if self._folder is not None and kept is not None:
            # Where there is no room, each step would try.
            with self._meter.aside("checkpoint"):
                self._periodic.done(snapshot.write_and_tell(self._folder, kept))

    def _save_if_due(self, *, epoch_ended: bool) -> None:
        """Writes a checkpoint to the disk when one is due."""
        self._training.at_boundary(self._keeper.state)
        saving = durable()
        if saving is None or not saving.is_due(self._number, self.step, epoch_ended=epoch_ended):
            return
        with self._meter.aside("checkpoint"):
            kept = self._keeper.state()
            if kept is not None:
                saving.submit(self._saved(), kept)

    def _saved(self) -> Saved:
        mine = self._parts
        return Saved(
            model=mine.model_as_given,
            optimizer=mine.optimizer_as_given,
            variables=mine.variables(),
        )

    def _finish_step(self) -> None:
        """A loop that was left by `break` has done its last step."""
        if not self._in_step:
            return
        self._in_step = False
        ledger.settle()
        self._step_ended(self._after)
        # Its iterators have gone with it.
        self._kept = dict(self._progress.data)

    def _begin_with(self, dataset: Any) -> None:
        """Tells the learning rate, and a person, the batch of this data."""
        batch = global_batch.of_dataset(dataset)
        for optimizer in self._parts.optimizers:
            training_header.bind(optimizer, batch)
        if self._folder is not None and not self._is_done:
            training_header.tell(self._parts.optimizers[0], batch, self._strategy)

    def _reader(self, dataset: Any, epochs: int) -> readers.Reader:
        """The dataset's reader, which goes on where the earlier run stood."""
        strategy = self._strategy or train_state_parts.strategy_of(self._parts.models[0])
        reader = readers.reader_of(dataset, strategy, epochs)
        mine, others = self._kept.pop(reader.name, None), _places.pop(reader.name, None)
        if mine is not None:
            reader.go_to(readers.place_in(reader, self._progress.reads, *mine), goes_on=True)
        elif others is not None:
            reader.go_to(Position(epoch=others[0], step=others[1]).next_epoch())
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
