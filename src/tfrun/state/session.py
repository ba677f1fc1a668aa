"""Keeps, saves and tells of one training, a `fit` or a loop, that may be cut off and run again.

Of each of them the same three things are seen to. Its state is kept: in this machine's memory, now
and then and when a peer's end cuts it off, so that the script's next run goes on from there. It is
saved: to the disk, when a checkpoint is due or the system wants the machine back. And what is done
is told, to the agent and to the script's next run, which passes it by.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tfrun.data.ledger import writer as ledger
from tfrun.engine import host_collective, script_state, variable_values
from tfrun.engine.agree import any_worker
from tfrun.engine.sync_check import check_in_sync
from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import may_stay, one_for_good, why_not_stay, world
from tfrun.process import channel
from tfrun.state import (
    finished_calls,
    kept_outside,
    leave_round,
    next_round,
    save_on_preemption,
    share_snapshot,
    snapshot,
)
from tfrun.state import numbered_calls as calls
from tfrun.state.durable_checkpoints import Saved, bring_back, durable
from tfrun.state.keeper import Keeper
from tfrun.state.snapshot import Place, Snapshot
from tfrun.state.snapshots_due import interval

K = TypeVar("K", bound=Keeper)


class Meter(Protocol):
    """Measures the steps of a training, see train/step_meter.py."""

    call: int | None

    def begins(self) -> None: ...

    def returned(self, steps: int = 1) -> None: ...

    def ended(
        self, *, epoch: int, in_epoch: int, step: int, logs: Mapping[str, Any] | None = None
    ) -> None: ...

    def rests(self) -> None: ...

    def evaluation_begins(self) -> None: ...

    def evaluation_ends(self) -> None: ...

    def aside(self, kind: str) -> contextlib.AbstractContextManager[None]: ...

    def closes(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class GoesOn:
    """A training that goes on in this process, with others.

    Attributes:
      number: of the training in the script.
      state: in which it does; None where it is at its beginning.
      waits: it has no place yet: a successor that waits for one when all has been made.
      stayed: this process has trained in the round before; else it has rehearsed.
    """

    number: int
    state: Snapshot | None
    stayed: bool
    waits: bool = False


class Session(Generic[K]):
    """What recovery has to do with one training.

    Args:
      strategy: its multi-worker strategy, None for one worker alone.
      folder: this machine's snapshots.
      meter: measures its steps.
      saved: gives what it becomes in a TensorFlow checkpoint.
      goes_on: the number and the state of a training that goes on in this process.

    Attributes:
      on_servers: the state is on parameter servers, and only checkpoints keep it.
      number: of this training in the script, from 0.
      keeper: keeps its state; None until there is something to keep.
      changing: while it lasts no other thread takes the state.
      has_stepped: its first step is done.
    """

    on_servers: ClassVar[bool] = False
    _said: str | None = None  # why it could not stay
    _was_restored = False  # the state that it goes on from is that of another process

    def __init__(
        self,
        strategy: Any | None,
        folder: Path,
        meter: Meter,
        saved: Callable[[], Saved],
        goes_on: GoesOn | None = None,
    ) -> None:
        self._goes_on = goes_on
        self.number = meter.call = calls.begin() if goes_on is None else goes_on.number
        self.keeper: K | None = None
        self._strategy, self._folder, self._meter, self._saved = strategy, folder, meter, saved
        self._recovers = settings().recovers and not self.on_servers
        self._periodic = interval(settings().snapshots, shared=settings().shard_optimizer)
        self._target = None
        if goes_on is None:
            self._target = calls.target(strategy, folder, on_servers=self.on_servers)
        self._training: save_on_preemption.Preemptible | None = None
        self.changing: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        self.has_stepped = False

    # --- what the script's earlier run has left ----------------------------------------------

    @property
    def is_done(self) -> bool:
        """True when the script's earlier run has finished this training."""
        return self._target is not None and self.number < self._target.call

    def left(self) -> Snapshot | None:
        """What a training that is done has left; None when nobody has kept it. A collective."""
        ledger.training_is_done()
        path = snapshot.path_of_call(self._folder, self.number)
        bring_back(path)
        done = share_snapshot.fetch(self._strategy, path, has=path.exists())
        if done is not None and (saving := durable()) is not None:
            saving.calls.keep_missing(path)
        return done

    def passed_by(self, step: int) -> None:
        """A training that is done was passed by, `step` steps of it. A collective.

        When nothing is kept of what came after it, that may be the end of the script: a person has
        to see it, even if some lines come twice.
        """
        place = self._target
        if place is None or place != Place(call=self.number + 1):
            return
        has = snapshot.path_of(self._folder, place).exists()
        if self._strategy is not None:
            (has,) = any_worker(self._strategy, [has])
        if not has:
            leave_round.say_resumed(place, step)

    def begin(self) -> Snapshot | None:
        """The training is open from here to `close`. A collective.

        Returns:
          The state in which it was cut off; None when it has not been.
        """
        self._training = save_on_preemption.Preemptible(self._saved, self._state_aside)
        self.changing, target = self._training.changing, self._target
        if self._goes_on is not None:
            kept, self._goes_on = self._goes_on.state, replace(self._goes_on, state=None)
            return kept
        if target is None or target.call != self.number:
            return None
        path = snapshot.path_of(self._folder, target)
        kept = share_snapshot.fetch(self._strategy, path, has=path.exists())
        if kept is not None:
            self._training.rests(lambda: save_on_preemption.read(path))
        return kept

    @property
    def _stayed(self) -> bool:
        return self._goes_on is not None and self._goes_on.stayed

    def resumed(self, kept: Snapshot, step: int) -> None:
        """The kept state is restored; the training has made `step` steps in all."""
        self._was_restored = not self._stayed
        what = self._saved()
        if (saving := durable()) is not None:
            saving.prepare(what)  # here, not while a step is being traced
            saving.resumes(self.number, step)
        if self._strategy is not None and self._goes_on is None:
            # Before the first step: a state that differs between workers must not be trained on.
            check_in_sync(what.variables.items())
        leave_round.say_resumed(kept.place, step)

    # --- the training ------------------------------------------------------------------------

    def step_begins(self) -> None:
        """A step is about to change the state, unless it is the first: that is traced before."""
        if self.has_stepped:
            self.moves()
        else:
            script_state.first_step_begins()

    def moves(self) -> None:
        """A step changes the state from now on."""
        assert self._training is not None
        self._training.moves()

    def rests(self) -> None:
        """Its steps are done for now: any thread may take the state."""
        assert self._training is not None and self.keeper is not None
        if self.has_stepped:
            self._training.rests(self.keeper.state)

    def first_steps(self, place: Place, step: int, made: int) -> None:
        """The first `made` steps are done, which were traced, for who knows how long."""
        self.has_stepped = True
        leave_round.say_stepped(place, step, made)
        if self._was_restored and self.keeper is not None:
            self._was_restored = False
            kept_outside.tell_of_ops()
            if self._goes_on is None:  # else it would not have stayed, or have been taken on
                kept_outside.tell_not_given(self.keeper.known())

    def after_steps(
        self,
        *,
        epoch: int,
        in_epoch: int,
        step: int,
        made: int = 1,
        logs: Mapping[str, Any] | None = None,
    ) -> None:
        """All have seen `made` steps end: keeps, saves and tells what is due; leaves if wanted."""
        self._meter.ended(epoch=epoch, in_epoch=in_epoch, step=step, logs=logs)
        if self._periodic.due(made) and world().local_rank == 0 and self.keeper is not None:
            self._write(self.keeper.state())
        self.save_if_due(step, epoch_ended=False)
        leave_round.leave_to_regroup(self._keep_unless_it_stays)

    def save_if_wanted(self) -> None:
        """Between any two steps: the machine may be being preempted."""
        if self.keeper is not None and self._training is not None:
            self._training.at_boundary(self.keeper.state)

    def save_if_due(self, step: int, *, epoch_ended: bool) -> None:
        """Writes a checkpoint to the disk when one is due after so many steps."""
        if next_round.entered:
            next_round.let_go(epoch_ended=epoch_ended)
        if self.keeper is None or self._training is None:
            return
        self._training.at_boundary(self.keeper.state)
        saving = durable()
        if saving is None or not saving.is_due(self.number, step, epoch_ended=epoch_ended):
            return
        with self._meter.aside("checkpoint"):
            kept = self.keeper.state()
            if kept is not None:
                saving.submit(self._saved(), kept)

    def why_not_stay(self) -> str:
        """Why this process cannot go on with the training in the next round; "" if it can."""
        if why := why_not_stay():
            return why
        if self._strategy is None or not may_stay():
            return "the job does not have its workers stay"
        if host_collective.current() is None:
            return "its workers use TensorFlow's collectives"
        return ""

    def _say_whether_it_stays(self, why_not: str) -> None:
        """Tells it, where that has changed."""
        if self._strategy is not None and (may_stay() or one_for_good()) and why_not != self._said:
            self._said = why_not
            leave_round.can_stay(can=not why_not)
            overlaps = host_collective.overlaps()
            channel.emit(reports.CanStay(can=not why_not, why=why_not, overlaps=overlaps))

    @property
    def is_shared(self) -> bool:
        """Whether each worker has some of the state for itself."""
        return False

    def _keep_unless_it_stays(self) -> None:
        if self.why_not_stay():
            self.keep()

    def keep(self) -> None:
        """A peer's end has cut the training off: writes the snapshot.

        Not where that peer had a part of the state for itself: all go on from the newest snapshot.
        """
        leave_round.keeping()
        if self._recovers and not self.is_shared:
            kept = self._state_here()
            self._write(kept)
            if self._training is not None and kept is not None:
                self._training.at_boundary(lambda: kept)

    def _state_here(self) -> Snapshot | None:
        """The newest whole state; None where there is none, or none is needed."""
        return self.keeper.state() if self.keeper else None

    def _state_aside(self) -> Snapshot | None:
        return self.keeper.state_aside() if self.keeper and self._recovers else None

    def _write(self, kept: Snapshot | None) -> None:
        """Writes a snapshot and says so."""
        if kept is not None:
            with self._meter.aside("checkpoint"):
                # Where there is no room, each step would try.
                self._periodic.done(snapshot.write_and_tell(self._folder, kept))

    # --- its end -----------------------------------------------------------------------------

    def record(
        self, left: Callable[[], Snapshot | None], step: int, *, models: Sequence[Any]
    ) -> None:
        """Keeps what the training has left, for a run of the script after this one."""
        saving = durable()
        if self._recovers or saving is not None:
            path = snapshot.path_of_call(self._folder, self.number)
            is_there = path.exists()  # another worker of this machine was quicker
            mine = not self.is_shared or world().local_rank == 0  # else each would ask for all
            if mine and not is_there and (kept := left()) is not None:
                finished_calls.write(self._folder, self.number, kept, models=models)
                is_there = True
            if is_there and saving is not None:
                saving.calls.keep(path)
            if is_there:
                self._tell_done(step)
        if settings().drill and world().is_chief:
            digest = variable_values.digest(self._saved().variables.values())
            channel.emit(reports.Weights(call=self.number, digest=digest))

    def _tell_done(self, step: int) -> None:
        channel.emit(reports.SnapshotTaken(key=[self.number + 1, 0, 0], step=step, seconds=0.0))

    def close(self) -> None:
        """The training is over, and what it has left is kept."""
        if self._training is not None:
            self._training.close()
        if self.keeper is not None:
            self.keeper.release()
