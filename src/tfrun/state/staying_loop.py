"""Takes one loop of the script's own from round to round in its process.

A step that a peer's end has cut off is made again where it was called, with others: the loop's body
does not notice. Between two steps a worker is in another round when the body has ended. A successor
waits where its `TrainState` is made, once it has traced what the others have (trace_ahead.py), and
does from there what any process does that is given a state.

Nobody can be taken to where another worker is, in the midst of a body: where workers are not at the
same step, all begin again as they do elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import tensorflow as tf

from tfrun.engine import (
    between_steps,
    host_collective,
    initial_values,
    loop_refusals,
    loop_traces,
    script_state,
    trace_ahead,
    variable_values,
)
from tfrun.engine.replica import turns_of
from tfrun.job import reports
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import settings
from tfrun.job.world import may_stay, world
from tfrun.process import channel
from tfrun.process.peers_left import PeersLeft
from tfrun.state import leave_round, next_round
from tfrun.state.durable_checkpoints import durable
from tfrun.state.loop_keeper import LoopKeeper
from tfrun.state.session import GoesOn, Session
from tfrun.state.share_snapshot import Apart, Stand
from tfrun.state.snapshot import Snapshot


class StayingLoop(Session[LoopKeeper]):
    """What recovery has to do with one loop, in a process that lives through several rounds.

    Attributes:
      repeat: gives what the step that is being made reads, in another round; None where the loop
        cannot be made again.
      tells_step: the next step is the first one of this process in its round.
      looks_again: what steps assign may have changed since somebody looked.
    """

    repeat: Callable[[], Any] | None = None
    tells_step = True
    looks_again = True
    _own = -1  # of so many that steps assign is known whether the state has them
    _unknown = ""  # a variable among them that it has not
    _between_at = 0  # steps that were done then
    _between: between_steps.Deeds | None = None  # since the newest step
    _unknown_before = ""  # as `_not_known`, after that step
    _is_open: ClassVar[bool] = False  # some loop's, in this process
    # The newest round, entered in the midst of a step which has to be made again; or what came up.
    _entered: Snapshot | BaseException | None = None

    @classmethod
    def is_open(cls) -> bool:
        """Whether the script is in a loop that goes on from round to round."""
        return cls._is_open and may_stay()

    def begin(self) -> Snapshot | None:
        StayingLoop._is_open = True
        loop_traces.when_traced = self._tell_traced
        return super().begin()

    def _tell_traced(
        self, call: loop_traces.Traces, specs: Sequence[tf.TensorSpec], traced: Any
    ) -> None:
        """Tells those who come later what they can trace before they join."""
        if not world().is_chief or settings().rehearses or not may_stay():
            return
        if (text := trace_ahead.told(call, specs, traced)) is not None:
            channel.emit(reports.LoopTraced(call=self.number, trace=text))

    def why_not_stay(self) -> str:
        readings = () if self._between is None else self._between.readings
        if why := loop_refusals.why_one_each(readings) or super().why_not_stay():
            return why
        if script_state.calls_python:
            return "its step calls the script's Python"
        if self.repeat is None:
            return "a loop of the script's own without steps"
        return self._not_known() if self._between is None else self._unknown_before

    def _not_known(self) -> str:
        """What steps have assigned that cannot be taken back."""
        turns, keeper = turns_of(self._strategy), self.keeper
        if turns is None or keeper is None:
            return "its state is not known yet"
        count = len(turns.copies.own)
        if count != self._own or self.looks_again:  # this is asked at each step
            self._own, self.looks_again = count, False
            self._unknown = turns.copies.besides(keeper.handles())
        what = "its step assigns what its TrainState was not given"
        return self._unknown and f"{what}: {self._unknown}"

    def say_whether_it_stays(self) -> None:
        """Tells it, where that has changed."""
        self._say_whether_it_stays(self.why_not_stay())

    def between_begins(self, step: int) -> None:
        """The script does something else from now on, until its next step.

        Args:
          step: steps that are done.
        """
        if self._strategy is None or turns_of(self._strategy) is None or not may_stay():
            return
        self.looks_again = True
        self._unknown_before = self._not_known()
        self._between_at, self._between = step, between_steps.Deeds(self)
        between_steps.begin(self._between)

    def _between_ends(self) -> None:
        if self._between is not None:
            self._between = None
            between_steps.end()

    def enters_between(self, error: Exception) -> bool:
        """Enters the next round where something between two steps was cut off.

        Raises:
          PeersLeft: not all others can, and this worker's state is kept.
        """
        mine, deeds = self._goes_on_from(error, self._between_at), self._between
        if mine is None or deeds is None or self.keeper is None:
            return False
        undo = self.keeper.undo(mine, deeds.assigned)
        if undo is None:
            return False
        stand = {"sums": deeds.sums, "fresh": deeds.are_none, "all_came": not deeds.skipped}
        self._enters_with(mine, error, self._between_at, **stand)
        with self.changing:
            undo()
        return True

    def gives_up(self, error: Exception) -> NoReturn:
        self.keep()
        raise PeersLeft from error

    def collectives(self) -> int:
        return self._calls.group.counts.collectives

    def counted(self) -> dict[Any, tf.Tensor]:
        turns = self._calls.turns
        return {
            (number, key): copy.read_value()
            for key, made in turns.copies.counted_by_steps().items()
            for number, copy in zip(turns.held, made, strict=False)
        }

    def close(self) -> None:
        self._between_ends()
        StayingLoop._is_open = False
        loop_traces.when_traced = None
        super().close()
        if self._said is not None:
            self._say_whether_it_stays("it is in no training")
            leave_round.can_stay(can=self._strategy is not None and may_stay())

    def waits_for_a_place(self) -> Snapshot | None:
        """Of a successor: waits until it has one; returns the state that all are in.

        Before, it traces what the others have told it that they have.

        Raises:
          PeersLeft: the others are where it cannot join them.
        """
        assert self.keeper is not None
        traces = settings().rehearses_traces
        if not trace_ahead.trace(self._strategy, traces, self.keeper.handles):
            raise SystemExit("what the others have traced cannot be traced before the loop begins")
        variable_values.make_room(self._saved().variables.values())
        stand = Stand(call=self.number, stayed=False)
        try:
            kept = self._enter(stand, None, 0, leave_round.nothing_to_keep)
        except Apart:  # they go on without it, as where it had died
            error = tf.errors.UnavailableError(None, None, "the others are in a validation")
            raise PeersLeft from error
        self._goes_on = GoesOn(number=self.number, state=None, stayed=False)
        self._calls.stand_apart()
        return kept

    def epoch_begins(self) -> None:
        """Its steps come now, the first of which may be traced for long; or it has none left."""
        if self._goes_on is not None and not self._goes_on.stayed:
            self._calls.join()  # the others are in the midst of this, too
        self._between_ends()
        self.looks_again = True
        self.say_whether_it_stays()

    def again(self, error: BaseException, step: int) -> Any:
        """Enters the next round, and takes back what a step has done that is to be made again.

        Args:
          error: has cut it off.
          step: steps that are done.

        Returns:
          What the step reads there; None where it cannot be made again.

        Raises:
          PeersLeft: not all others can, and this worker's state is kept.
        """
        mine, self._entered = self._entered, None
        if isinstance(mine, BaseException):
            raise mine from error
        if mine is None:
            mine = self._goes_on_from(error, step)
            if mine is None:
                return None
            self._enters_with(mine, error, step)
        assert self.keeper is not None and self.repeat is not None, "else it would not stay"
        with self.changing:
            # The body has drawn its own numbers by now, and does not draw them again.
            self.keeper.take_back(mine, random=False)
        return self.repeat()

    def goes_on_in_step(self, step: int, given: Callable[[Any], Any]) -> Any:
        """Enters the next round in the midst of a step's first call, which may go on there.

        Where it does not it fails, and `again` has the step made again in that round.

        Args:
          step: steps that are done.
          given: see `loop_calls.Calls.goes_on`.
        """
        error = tf.errors.UnavailableError(None, None, "a peer left")
        try:
            mine = self._goes_on_from(error, step)
            if mine is None:
                return None
            own = list(self._turns.held)
            self._enters_with(mine, error, step, first=min(own), waits=len(own))
            self._entered = mine
            # Nobody knows what metrics of the missing ones hold where they are updated late.
            fits = not mine.values["late"] and set(own) <= set(self._turns.held)
            assert self.keeper is not None and self.repeat is not None, "else it would not stay"
            if not fits or not self.keeper.begin_for_others(mine, self._turns, own):
                return None
            found = given(self.repeat())
            self._entered = None if found is not None else mine
            return found
        except BaseException as entered:  # the step's caller is to know, not who sums
            self._entered = entered
            return None

    def between_steps(self, error: PeersLeft, step: int) -> None:
        """Enters the next round where others come, or a machine goes.

        Args:
          error: says so.
          step: steps that are done.

        Raises:
          PeersLeft: this worker cannot, or not with all others; its state is kept.
        """
        mine = self._goes_on_from(error, step)
        if mine is None:
            raise error
        assert self.keeper is not None
        self._enters_with(mine, error, step, fresh=True)
        with self.changing:  # replicas have come to be here, or gone, with what metrics count
            self.keeper.take_back(mine, random=False)

    @property
    def _calls(self) -> Any:
        return host_collective.calls_of(self._strategy)

    @property
    def _turns(self) -> Any:
        return turns_of(self._strategy)

    def _goes_on_from(self, error: BaseException, step: int) -> Snapshot | None:
        """The state that this worker has where the training goes on here; None where it cannot."""
        self.looks_again = True
        is_peers = isinstance(error, PeersLeft) or is_peer_error(type(error).__name__, str(error))
        if not is_peers or self.why_not_stay() or self.keeper is None:
            return None
        with self.changing:
            mine = self.keeper.state_here(whole=False)
        # Where its update is made, what is left of the step cannot be made for others.
        return mine if mine is not None and mine.place.step == step else None

    def _enters_with(self, mine: Snapshot, error: BaseException, step: int, **more: Any) -> None:
        was_chief = world().is_chief
        leave_round.keeping()
        stand = Stand(call=self.number, epoch=0, step=mine.place.step, levels=False, led=was_chief)
        stand = stand._replace(is_whole=not initial_values.made_alone(), **more)
        try:
            self._enter(stand, mine, step, self.keep)
        except Apart as apart:
            self.keep()
            raise PeersLeft from (error.__cause__ or error) or apart
        self._meter.rests()
        self.tells_step = True
        if world().is_chief != was_chief and (saving := durable()) is not None:
            saving.prepare(self._saved())
            saving.resumes(self.number, step)
        channel.emit(reports.Resumed(key=list(mine.place), step=step))

    def _enter(
        self, stand: Stand, mine: Snapshot | None, step: int, keep: Callable[[], None]
    ) -> Snapshot | None:
        assert self.keeper is not None
        return next_round.enter(self._strategy, stand, mine, self._whole_state, step, keep)

    def _whole_state(self) -> Snapshot:
        assert self.keeper is not None
        kept = self.keeper.state_here()
        assert kept is not None
        return kept
