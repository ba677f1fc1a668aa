"""Keeps, at every moment of a training, a state that a successor can go on from.

Most of the time that is what the variables hold. Where they may be in the middle of something it
is what they held before it: a step that a peer's death has cut off changes no weight (see
engine/commit.py) but may have drawn random seeds and moved BatchNorm's statistics. What is special
to a `fit` stands in fit_keeper.py, what is to a loop of the script's own in loop_keeper.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.engine import commit as commits
from tfrun.engine import script_state, state_slots, variable_values
from tfrun.engine.replica import turns_of
from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state import kept_outside, random_state, snapshot
from tfrun.state.snapshot import Place, Snapshot

_LATE = (
    "the weights are those of an undisturbed run, but the metrics of this epoch lack the last step "
    "before the failure. What the script's step adds to them depends on the update of the weights, "
    "and the other workers know a step only up to that update. Add to the metrics before the update"
)


class Keeper:
    """Keeps the state of one training.

    Args:
      commit: counts the steps and adds up metrics over workers; None for one worker alone.
    """

    def __init__(self, commit: commits.Commit | None) -> None:
        self._commit = commit
        self._in_step = False
        self._step_began: int | None = None  # the count then, in the middle of one
        self._variables: dict[str, Any] = {}
        # What no optimizer updates something else may: a seed, statistics, a moving average.
        self._ungated: dict[str, Any] = {}
        self._trained: list[list[int] | None] = []  # of each optimizer, see variable_values

    # --- what the two kinds say of themselves --------------------------------------------------

    def state(self, *, whole: bool = True) -> Snapshot | None:
        """The newest whole state; None when there is none, or none is needed.

        Args:
          whole: with all variables; else with those alone that do not hold it.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Holds nothing any more that variables held: the next step's update would copy it."""
        raise NotImplementedError

    def _look_at_variables(self) -> None:
        """Finds the variables that belong to the state now."""
        raise NotImplementedError

    def _build(self, kept: Snapshot) -> None:
        """Makes the variables that a first step makes, as far as a kept state has them."""
        raise NotImplementedError

    def _put_back(self, kept: Snapshot) -> None:
        """Gives back what is no variable."""
        raise NotImplementedError

    @property
    def _metric_variables(self) -> Sequence[Any]:
        raise NotImplementedError

    # --- what they have in common --------------------------------------------------------------

    def state_aside(self) -> Snapshot | None:
        """As `state`, for another thread than the training's; None while there is no telling."""
        if self._commit is None:
            return None if self._in_step else self.state()
        with contextlib.suppress(state_slots.Moved):
            return commits.unless_updated(self._commit, self.state)
        return None

    def restore(self, kept: Snapshot, *, random: bool = True) -> None:
        """Gives back a kept state, of the same place in the same script.

        Args:
          kept: the state.
          random: the global random generators go on from it, too.

        Raises:
          TfrunError: TFRUN-507 where the script has made another model, or other metrics.
        """
        self._build(kept)
        self._look_at_variables()
        _restore_variables(self._variables, kept)
        kept_outside.tell_missing(self._variables, kept)
        self._put_back(kept)
        self._restore_others(kept, random=random)

    def known(self) -> set[int]:
        """The ids of all variables that the state is of."""
        self._look_at_variables()
        every = (*self._variables.values(), *self._metric_variables)
        return {id(v._value if isinstance(v, script_state.Plain) else v) for v in every}

    def take_back(self, kept: Snapshot, *, random: bool = True) -> None:
        """Undoes what a step has done that was cut off; nobody but the step has seen any of it.

        Args:
          kept: what the variables do not hold of the state before it, see `state`.
          random: the global random generators, too.
        """
        self._look_at_variables()
        _restore_variables(self._variables, kept)
        self._restore_others(kept, random=random)

    def _restore_others(self, kept: Snapshot, *, random: bool) -> None:
        if "metrics" in kept.arrays:
            _restore_metrics(self._metric_variables, self._commit, kept)
        if random:
            random_state.put_back(kept.values["random"], kept.arrays)

    def began_with(self, kept: Snapshot, replica: int, replicas: int) -> dict[int, NDArray]:
        """What a replica's variables held when the step began that is being made.

        Args:
          kept: what those of this process do not hold of the state before it, see `state`.
          replica: its number.
          replicas: of the job.

        Returns:
          By the id of the handle of this worker's first copy; without what nobody knows.
        """
        found = {
            id(variable_values.copies(variable)[0].handle): kept.arrays[name]
            for name, variable in self._variables.items()
            if name in kept.arrays
        }
        commit, totals = self._commit, kept.arrays.get("metrics")
        if commit is None or (totals is not None and len(totals) != replicas):
            return found
        start = 0
        for variable in commit.metrics:
            shape = tuple(variable.shape)
            end = start + int(np.prod(shape))
            copy = variable_values.copies(variable)[0]
            row = np.zeros(end - start) if totals is None else totals[replica, start:end]
            value = row.reshape(shape).astype(copy.dtype.as_numpy_dtype)
            found[id(copy.handle)], start = value, end
        return found

    def begin_for_others(self, kept: Snapshot, turns: Any, own: Collection[int]) -> bool:
        """Has replicas that have come here begin the step as those that are in its midst have.

        Args:
          kept: as of `began_with`.
          turns: this worker's `Turns`.
          own: the replicas that make the step already.

        Returns:
          Whether all can.
        """
        return all(
            turns.copies.fills(place, self.began_with(kept, number, turns.total))
            for place, number in enumerate(turns.held)
            if number not in own
        )

    def _count(self) -> int:
        """How many updates this worker has made so far."""
        assert self._commit is not None
        return int(variable_values.read(self._commit.steps))

    def _whole(
        self,
        place: Place,
        values: dict[str, Any],
        arrays: dict[str, NDArray],
        *,
        held: Mapping[str, tf.Tensor],
        random: random_state.State,
        iterations: int,
        whole: bool = True,
        late: Collection[str] = (),
    ) -> Snapshot:
        """The state: `values` with their `arrays`, and all variables as they are or are held.

        Args:
          place: where it stands.
          values: see above.
          arrays: likewise.
          held: what variables held then, by name; the others are as they are.
          random: what Python's and numpy's generators held.
          iterations: steps of the optimizer.
          whole: see `state`.
          late: variables that the step has made which is cut off: they begin anew.
        """
        away = state_slots.fetched(self._variables.values() if whole else ())
        for name, variable in self._variables.items():
            value = held.get(name)
            if name in late or (value is None and not whole):
                continue
            if id(variable) in away:
                arrays[name] = away[id(variable)]
                continue
            value = variable_values.hold([variable])[0] if value is None else value
            arrays[name] = np.asarray(value)  # without a copy: see `hold`
        values = {
            **values,
            "random": random_state.encode(random, arrays),
            "iterations": iterations,
            "late": self._commit is not None and self._commit.late,
        }
        return Snapshot(place=place, values=values, arrays=arrays)


def _restore_variables(found: dict[str, Any], kept: Snapshot) -> None:
    """Assigns each variable in `found` its kept value, if it has one."""
    for name in kept.arrays:
        if name.startswith(snapshot.VARIABLES) and name not in found:
            raise variable_values.misfit(f"the state holds a variable {name!r}, which is not there")
    for name, variable in found.items():
        if name in kept.arrays:
            variable_values.assign(variable, kept.arrays[name])


def _restore_metrics(metrics: Sequence[Any], commit: commits.Commit | None, kept: Snapshot) -> None:
    """Gives this worker's metrics what they had counted.

    `metrics` are all their variables, for one worker alone; those of several a commit knows.
    """
    if kept.values.get("late") and world().is_chief:
        channel.emit(reports.WorkerNotice(text=_LATE))
    totals = kept.arrays["metrics"]
    if commit is None:
        here = max((len(variable_values.copies(variable)) for variable in metrics), default=1)
        variable_values.set_metric_totals(metrics, totals, replicas=here)
        return
    strategy = commit.metrics[0]._value.distribute_strategy if commit.metrics else None
    if strategy is not None:
        here, every = len(strategy.extended.worker_devices), strategy.num_replicas_in_sync
        turns = turns_of(strategy)
        first = turns.held[0] if turns else world().rank * here
        variable_values.set_metric_totals(commit.metrics, totals, first=first, replicas=every)
        mine = variable_values.fitting(totals, len(commit.totals.numpy()))
        commit.totals.assign(mine.astype(commit.totals.dtype.as_numpy_dtype))
