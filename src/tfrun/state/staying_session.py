"""Takes one `fit` from round to round in its process, as far as that can be in the midst of it.

A step that a peer's end has cut off is made again, with others. Keras's `fit` does not notice: it
calls its train function once, between the same two callbacks, and what it calls enters the job's
next round when the step fails, and makes the step there. Between two steps it does the same where
others come. A successor waits at the beginning of a `fit`, when all has been made that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.data.keras.fit_plan import FitPlan
from tfrun.data.order.other_batches import ResumePoint
from tfrun.engine import host_collective, initial_values, variable_values
from tfrun.engine.replica import turns_of
from tfrun.job import reports
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import settings
from tfrun.job.world import may_stay, world
from tfrun.process import channel
from tfrun.process.peers_left import PeersLeft
from tfrun.state import between_trainings, leave_round, next_round
from tfrun.state.callback_state import append_to_logs
from tfrun.state.durable_checkpoints import durable
from tfrun.state.fit_data import FitData
from tfrun.state.fit_keeper import FitKeeper, iterations_of
from tfrun.state.session import GoesOn, Session
from tfrun.state.share_snapshot import Apart, Stand
from tfrun.state.snapshot import Snapshot


class GoesElsewhere(PeersLeft):
    """This worker is in the next round, and its `fit` has to begin anew to stand where others do.

    Attributes:
      goes_on: where that is, see `session.GoesOn`.
    """

    def __init__(self, goes_on: Any) -> None:
        super().__init__("the training goes on elsewhere")
        self.goes_on = goes_on


class MadeAgain:
    """A train function whose step is made again where it can be.

    Args:
      function: the train function.
      again: is given the error; returns an iterator with the step's batches, or raises.

    Attributes:
      function: see above.
    """

    def __init__(self, function: Any, again: Callable[[Exception], Any]) -> None:
        self.function, self._again = function, again

    def __call__(self, iterator: Any) -> Any:
        while True:
            try:
                return self.function(iterator)
            except Exception as error:
                iterator = self._again(error)


class StayingSession(Session[FitKeeper]):
    """What recovery has to do with one `fit` in a process that lives through several rounds.

    Attributes:
      take_part: has callbacks do what those of the chief do, in the midst of the `fit`; False where
        they cannot. None: it does not go on without beginning anew.
    """

    _model: Any
    _plan: FitPlan
    _reads: FitData
    _callbacks: Sequence[Any] = ()
    _kept: Snapshot | None = None
    _at: ResumePoint = ResumePoint(0)  # the place of `_kept` in the data
    _steps = 0  # counted here: to ask the optimizer takes longer than all else at a step
    _in_step = _tells_step = _is_apart = False
    _mine: Snapshot | None = None  # with which it has entered the newest round
    _was_chief = False  # before that
    # The newest round, entered in the midst of a step which has to be made again; or what came up.
    _entered: GoesOn | BaseException | None = None
    take_part: Callable[[Sequence[Any]], bool] | None = None

    def watch_tracing(self) -> None:
        """From now on the keeper is told when a function has been traced, before it runs."""
        if self._turns is not None and self.keeper is not None:
            self._turns.when_traced = self.keeper.is_traced
            self._turns.go_on = self._go_on_in_step

    @property
    def _turns(self) -> Any | None:
        return None if self._strategy is None else turns_of(self._strategy)

    @property
    def _all_came(self) -> bool:
        """Whether all workers of the round are known to have come to this `fit`."""
        return self._plan.agreed is not None

    def watch_steps(self) -> None:
        """From now on the train function's steps are made again where they can be."""
        if not self.why_not_stay() and self.take_part and self._reads.is_exact:
            model = self._model
            model.train_function = MadeAgain(model.train_function, self._again)

    def close(self) -> None:
        super().close()
        if isinstance(made := self._model.train_function, MadeAgain):
            self._model.train_function = made.function
        initial_values.make_alone(wanted=False)
        if self._turns is not None:
            self._turns.when_traced = lambda: None
            self._turns.go_on = lambda: None
        self._say_whether_it_stays("it is in no fit")
        leave_round.can_stay(can=self._strategy is not None and may_stay())

    def why_not_stay(self) -> str:
        return super().why_not_stay() or self._reads.why_not_again

    def _again(self, error: Exception) -> Any:
        """Takes the training into the next round, where the step that has failed is made again.

        Returns:
          An iterator with its batches.

        Raises:
          error: it cannot be.
          GoesElsewhere: the others have made it already, or something of `fit` has to begin anew.
        """
        if not self._in_step:  # it was no step of this `fit`
            raise error
        self.go_on_here(error)
        assert self.keeper is not None
        self.step_begins()
        return self._reads.repeat(self.keeper.per_execution)

    def go_on_here(self, error: BaseException) -> None:
        """Enters the next round, and has `fit` go on where it is; raises as `_again`."""
        goes_on, self._entered = self._entered, None
        if goes_on is None and self.take_part and self._reads.is_exact:
            goes_on = self.goes_on(error)
        if isinstance(goes_on, BaseException):
            raise goes_on from error
        if goes_on is None or self.keeper is None:
            raise error
        kept = goes_on.state
        if kept is None or not self._stays_with(kept):
            raise GoesElsewhere(goes_on) from error
        with self.changing:
            self.keeper.take_back(kept)
            if not kept.place.step:
                self._reset_metrics()
        self._is_in_next_round(kept)

    def _go_on_in_step(self) -> Any | None:
        """Enters the next round in the midst of a step that goes on there: see `Turns.go_on`.

        Where it does not go on it fails, and `go_on_here` makes it again in that round.
        """
        keeper, turns = self.keeper, self._turns
        able = self._in_step and self.has_stepped and self.take_part and self._reads.is_exact
        if not able or turns is None or keeper is None or keeper.per_execution != 1:
            return None
        own = list(turns.held)
        try:
            error = tf.errors.UnavailableError(None, None, "a peer has left the round")
            entered = self._entered = self.goes_on(error, in_step=True)
            kept = entered.state if entered is not None else None
            if kept is None or kept is not self._mine or not set(own) <= set(turns.held):
                return None
            if kept.values["late"]:  # nobody knows what the metrics of the missing ones hold
                return None
            if not keeper.begin_for_others(kept, turns, own) or not self._stays_with(kept):
                return None
            reads = self._reads.repeat(1)
            self._is_in_next_round(kept)
            self._entered = None
            return reads
        except BaseException as error:  # the step's caller is to know, not who sums
            self._entered = error
            return None

    def _stays_with(self, kept: Snapshot) -> bool:
        """Whether `fit` goes on where it is, in a round whose workers go on from this state."""
        assert self.keeper is not None and self.take_part is not None
        if kept is not self._mine or kept.place != self.keeper.place:
            return False
        return world().is_chief == self._was_chief or self.take_part(self._callbacks)

    def _is_in_next_round(self, kept: Snapshot) -> None:
        self._model._eval_epoch_iterator = None  # made for another division of the batches
        self._meter.rests()
        self._tells_step = True
        if world().is_chief != self._was_chief and (saving := durable()) is not None:
            saving.prepare(self._saved())
            saving.resumes(self.number, self._steps)
        channel.emit(reports.Resumed(key=list(kept.place), step=self._steps))

    def _reset_metrics(self) -> None:
        """As Keras has at the beginning of the epoch: the step that was cut off has added to some.

        For TensorFlow to assign them is to read them from all workers.
        """
        self.stands_apart()
        self._model.reset_metrics()
        self.joins()

    def goes_on(self, error: BaseException, *, in_step: bool = False) -> GoesOn | None:
        """Takes this training into the job's next round, in this process.

        Returns:
          Where it goes on; None where it cannot.
        """
        if isinstance(error, GoesElsewhere):
            return error.goes_on
        is_peers = isinstance(error, PeersLeft) or is_peer_error(type(error).__name__, str(error))
        if not is_peers or self._is_apart or self.why_not_stay():
            return None
        if not between_trainings.may_stay_without(all_came=self._all_came):
            return None
        leave_round.keeping()
        stayed = not settings().rehearses
        if not stayed and not isinstance(error, PeersLeft):
            return None
        if not stayed and self._reads.is_exact:
            return GoesOn(number=self.number, state=None, stayed=False, waits=True)
        mine = self._state_here(whole=False) if stayed else None
        if stayed and mine is None and self.keeper:  # in the midst of what cannot be undone
            return None
        state = self._enter(mine, error, stayed=stayed, in_step=in_step)
        return GoesOn(number=self.number, state=state, stayed=stayed)

    def _enter(
        self,
        mine: Snapshot | None,
        error: BaseException | None,
        *,
        stayed: bool,
        in_step: bool = False,
    ) -> Snapshot | None:
        """Enters the next round with this state; returns that which all go on from.

        Raises:
          PeersLeft: the others are elsewhere in the script, and this one's state is kept.
        """
        stand = between_trainings.stand(self.number, all_came=self._all_came)
        stand = stand._replace(stayed=stayed)
        if mine is not None:
            begun = {name: mine.values[name] for name in ("began", "trained")}
            stand = Stand(*mine.place, **begun, led=world().is_chief)
        stand = stand._replace(is_whole=not initial_values.made_alone())
        if in_step and self._turns is not None:
            stand = stand._replace(first=min(self._turns.held), waits=len(self._turns.held))
        step = iterations_of(self._model)
        keep = self.keep if stayed else leave_round.nothing_to_keep
        self._mine, self._was_chief = mine, world().is_chief
        try:
            return next_round.enter(self._strategy, stand, mine, self._whole_state, step, keep)
        except Apart as apart:
            self._is_apart = True
            keep()
            raise PeersLeft from (error and (error.__cause__ or error)) or apart

    def stands_apart(self) -> None:
        """Until `joins`, what this worker calls is no collective: it comes to where others are."""
        calls: Any = host_collective.calls_of(self._strategy)
        calls.stand_apart()

    def joins(self) -> None:
        """This worker stands where the others stand."""
        calls: Any = host_collective.calls_of(self._strategy)
        calls.join()

    def _wait_for_a_place(self) -> None:
        """Of a successor: what a `fit` needs at its beginning has been made, and waits for others.

        Raises:
          GoesElsewhere: they have agreed on something else.
        """
        self._plan.iterator.get_ready()
        variable_values.make_room(variable_values.all_variables(self._model).values())
        kept = self._enter(None, None, stayed=False)
        if kept is None or kept.values["agreed"] != self._plan.agreed:
            raise GoesElsewhere(GoesOn(number=self.number, state=kept, stayed=False))
        self.stands_apart()
        self._kept, self._at = kept, self._reads.go_on(kept)
        self._plan.iterator.resume(self._plan.resume)
        append_to_logs(self._callbacks, kept.place.epoch)

    def _state_here(self, *, whole: bool = True, traced: bool = False) -> Snapshot | None:
        """The newest whole state; None at the beginning, and where there is none."""
        kept = self._kept
        if kept is None:
            return self.keeper.state(whole=whole, traced=traced) if self.keeper else None
        if not whole or self._goes_on is None:
            return kept
        # What is to be given back, and what variables hold already.
        every = variable_values.all_variables(self._model)
        missing = {n: v for n, v in every.items() if n not in kept.arrays}
        held = zip(missing, variable_values.hold(list(missing.values())), strict=True)
        return replace(kept, arrays={**{n: np.asarray(v) for n, v in held}, **kept.arrays})

    def _whole_state(self) -> Snapshot:
        kept = self._state_here(traced=True)
        assert kept is not None
        return kept
