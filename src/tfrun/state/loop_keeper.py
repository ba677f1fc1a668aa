"""Keeps, at every moment of a custom loop, a state that a successor can go on from.

As fit_keeper.py for `fit`; but the step is the script's own, so less is known of it. Weights and
slots are trusted to stand between two steps when the loop's steps have so far been one update
of one optimizer each (see engine/commit.py); what nobody counts is held from before the step.
Otherwise everything is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.engine import commit as commits
from tfrun.engine import own_copies, script_state, variable_values
from tfrun.engine.replica import turns_of
from tfrun.job.settings import settings
from tfrun.state import kept_outside, random_state
from tfrun.state.keeper import Keeper
from tfrun.state.loop_variables import LoopVariables
from tfrun.state.snapshot import Place, Snapshot
from tfrun.state.train_state_parts import LoopParts, strategy_of


@dataclass(frozen=True, kw_only=True)
class LoopProgress:
    """How far a loop has come.

    Attributes:
      step: steps that are done.
      epoch: epochs that are done.
      step_in_epoch: steps of the epoch that are done.
      data: for each dataset the epoch, the step in it and the sample of its batch that come next.
      reads: for each dataset how it was read, see `Reads.kept`.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    data: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A state between two steps.

    Attributes:
      tensors: the variables' values, of all or of those that are not gated.
      totals: the metrics, summed over the workers.
      own: the metrics' values on this worker.
      objects: what the script's objects remember, as JSON.
      arrays: that belong to `objects`.
      random: the state of Python's and numpy's generators.
    """

    tensors: dict[str, tf.Tensor]
    totals: tf.Tensor | None
    own: list[tf.Tensor]
    objects: dict[str, Any]
    arrays: dict[str, NDArray]
    random: random_state.State


class LoopKeeper(Keeper):
    """Keeps the state of one custom loop."""

    def __init__(self, parts: LoopParts, commit: commits.Commit | None, *, call: int) -> None:
        super().__init__(commit)
        self._parts, self._call = parts, call
        # What the loop makes later it makes anew where it goes on, as its Python variables.
        self._of_script = len(script_state.made)
        self._progress = self._after = LoopProgress()
        self._held: _Held | None = None
        # What variables held when the script's body had come to its first call.
        self._at_calls: dict[str, tf.Tensor] = {}
        self._known: dict[str, Any] = {}  # the variables that were there when the step began
        self._made: dict[str, tf.Tensor] = {}  # what others held when the step had made them
        self._counted: set[int] = set()  # updates that a step has had so far
        self._is_settled, self._recovers = False, settings().recovers
        self._carried = LoopVariables()

    def runs_in(self, frame: FrameType | None) -> None:
        """As of `LoopVariables`."""
        if self._recovers:
            self._carried.runs_in(frame)

    # --- what happens in the loop --------------------------------------------------------------

    def step_begins(self, progress: LoopProgress, after: LoopProgress) -> None:
        """The script is about to do a step that leads from `progress` to `after`."""
        self._progress, self._after, self._in_step = progress, after, True
        if self._commit is None or not self._recovers:
            return
        self._look_at_variables()
        self._known = self._variables  # without a copy: who looks at them makes another one
        self._held = self._hold(self._ungated if self._is_trusted else self._variables)
        self._step_began = self._count()

    def calls_begin(self) -> None:
        """The step's body is about to make the first call in which anything may be cut off.

        Who goes on in its process begins there again, and whoever begins anew with the body.
        """
        if self._held is None or self._commit is None:
            return
        chosen = self._ungated if self._is_trusted else self._variables
        self._at_calls = dict(zip(chosen, variable_values.hold(list(chosen.values())), strict=True))
        self._held = replace(self._held, own=variable_values.hold(self._metric_variables))

    def has_traced(self) -> None:
        """A function of the step's body has been traced, which may have made variables."""
        if self._step_began is not None:
            self._look_at_variables()
            known = self._known.keys() | self._made.keys()
            made = {n: v for n, v in self._variables.items() if n not in known}
            values = variable_values.hold(list(made.values()))
            self._made.update(zip(made, values, strict=True))

    def take_back(self, kept: Snapshot, *, random: bool = True) -> None:
        super().take_back(kept, random=random)
        for name, value in (*self._at_calls.items(), *self._made.items()):
            variable_values.assign(self._variables[name], value.numpy())

    def began_with(self, kept: Snapshot, replica: int, replicas: int) -> dict[int, NDArray]:
        self._look_at_variables()
        found = super().began_with(kept, replica, replicas)
        for name, value in (*self._at_calls.items(), *self._made.items()):
            found[_handle(self._variables[name])] = value.numpy()
        return found

    def undo(self, kept: Snapshot, assigned: Mapping[int, Any]) -> Callable[[], None] | None:
        """Undoes what the script has done since the newest step, as far as it is done again.

        Args:
          kept: what the variables may not hold any more of the state after that step.
          assigned: the variables that the script itself has assigned since, by their ids.

        Returns:
          What undoes it; None where nobody knows what one of the variables held.
        """
        known, turns = self.handles(), turns_of(strategy_of(self._parts.models[0]))
        assert turns is not None, "where workers stay they take turns"
        copies = turns.copies
        changed = {
            name: variable
            for name, variable in self._variables.items()
            if id(variable) in assigned or _handle(variable) in copies.own
        }
        ours = {id(variable) for variable in changed.values()}
        others = [variable for key, variable in assigned.items() if key not in ours]
        counts = all(own_copies.is_apart(variable_values.copies(v)[0]) for v in others)
        if not counts or copies.keeps_besides(known) or not changed.keys() <= kept.arrays.keys():
            return None

        def undo() -> None:
            for name, variable in changed.items():
                variable_values.assign(variable, kept.arrays[name])
            self._restore_others(kept, random=False)
            copies.forget_counted(besides=known)

        return undo

    def step_ended(self, progress: LoopProgress) -> None:
        """The script has done all of its step."""
        if self._step_began is not None:
            self._counted.add(self._count() - self._step_began)
        self._progress, self._step_began, self._held = progress, None, None
        self._at_calls, self._made = {}, {}
        self._in_step = False

    def epoch_ended(self) -> None:
        """What the script does before its next step is done again if it has to be."""
        if self._recovers:
            self._look_at_variables()
            self._held = self._hold(self._variables)

    def release(self) -> None:
        self._held, self._at_calls, self._made = None, {}, {}

    def handles(self) -> set[int]:
        """The ids of the handles of this worker's first copies of all variables of the state.

        Without TensorFlow's own: nobody knows when the script assigns them between two steps.
        """
        self._look_at_variables()
        every = [*self._variables.values(), *self._metric_variables]
        every = [variable for variable in every if not isinstance(variable, script_state.Plain)]
        return {_handle(variable) for variable in every}

    # --- what a successor gets -----------------------------------------------------------------

    def state(self, *, whole: bool = True) -> Snapshot | None:
        """The newest whole state; None when there is none, or none is needed."""
        if self._progress.step == 0 and self._call == 0:
            return None  # the script's start is that state
        return self.state_here(whole=whole)

    def state_here(self, *, whole: bool = True) -> Snapshot | None:
        """The newest whole state, for who goes on in this process; None when there is none."""
        held, progress, is_after = self._held, self._progress, False
        late = () if self._step_began is None else self._variables.keys() - self._known.keys()
        if self._step_began is not None and self._is_trusted:
            done = self._count() - self._step_began
            if done > 1:
                return None
            if done:
                held, progress, is_after, late = None, self._after, True, ()
        if held is None:
            self._look_at_variables()
            held = self._hold({})
        arrays = dict(held.arrays)
        if held.totals is not None:
            # In the middle of a step the script may have reset metrics only before its update.
            arrays["metrics"] = held.totals.numpy() if is_after else self._without_reset(held)
        values = {
            "progress": asdict(progress),
            "trained": self._trained,
            "objects": held.objects,
            "carried": self._carried.changed(),
        }
        return self._whole(
            Place(call=self._call, step=progress.step),
            values,
            arrays,
            held=held.tensors,
            random=held.random,
            iterations=progress.step,
            whole=whole,
            late=late,
        )

    @property
    def progress(self) -> LoopProgress:
        """How far the loop has come, as of the state that was given back."""
        return self._progress

    # -------------------------------------------------------------------------------------------

    @property
    def _is_trusted(self) -> bool:
        """Whether one update more means one whole step more.

        An object of the script's own moves on somewhere in the step, where nobody sees it.
        """
        assert self._commit is not None
        return self._counted == {1} and self._commit.per_run == 1 and not self._parts.objects

    @property
    def _metric_variables(self) -> list[Any]:
        return self._parts.metric_variables if self._commit is None else list(self._commit.metrics)

    def _build(self, kept: Snapshot) -> None:
        self._parts.build(kept.values["trained"])
        if variable_values.GLOBAL_SEED in kept.arrays:
            variable_values.build_global_seed(strategy_of(self._parts.models[0]))

    def _put_back(self, kept: Snapshot) -> None:
        self._parts.put_back(kept.values["objects"], kept.arrays)
        kept_outside.tell_of_loop(kept.values.get("carried", ()))
        found = dict(kept.values["progress"])
        found["data"] = {name: tuple(place) for name, place in found["data"].items()}
        self._progress = LoopProgress(**found)

    def _look_at_variables(self) -> None:
        if not self._is_settled:
            # A first step may make the seed that unseeded random numbers are drawn from.
            self._is_settled = self._parts.is_built and bool(self._counted)
            self._trained, mine = self._parts.trained(), self._parts.variables()
            known = [*mine.values(), *self._parts.metric_variables]
            of_script = script_state.found(known, self._of_script)
            self._variables = {**mine, **of_script}
            self._ungated = {**self._parts.ungated(), **of_script}

    def _hold(self, chosen: dict[str, Any]) -> _Held:
        arrays: dict[str, NDArray] = {}
        objects = self._parts.object_states(arrays)
        metrics, commit = self._metric_variables, self._commit
        if commit is None:
            totals = tf.constant(variable_values.metric_totals(metrics)) if metrics else None
        else:
            totals = variable_values.read(commit.totals) if metrics else None
        return _Held(
            tensors=dict(zip(chosen, variable_values.hold(list(chosen.values())), strict=True)),
            totals=totals,
            own=variable_values.hold(metrics),
            objects=objects,
            arrays=arrays,
            random=random_state.take(),
        )

    def _without_reset(self, held: _Held) -> NDArray[np.floating]:
        """The metrics' sums; zeros for a metric that the script has reset after its last update."""
        assert held.totals is not None
        totals = held.totals.numpy()
        # Before a worker's first step after a resume, its own part is zero and means nothing.
        if not self._counted:
            return totals
        own = {
            id(v): value.numpy() for v, value in zip(self._metric_variables, held.own, strict=True)
        }
        metrics = [[own[id(v)] for v in m.variables if id(v) in own] for m in self._parts.metrics]
        return totals * in_use(metrics)


def _handle(variable: Any) -> int:
    return id(variable_values.copies(variable)[0].handle)


def in_use(metrics: Sequence[Sequence[NDArray]]) -> NDArray[np.float32]:
    """Returns 1 for each number of a metric that has counted anything, 0 for one that was reset.

    Args:
      metrics: for each metric the values of its variables on this worker.
    """
    flags = [
        np.full(value.size, any(np.any(other) for other in metric), np.float32)
        for metric in metrics
        for value in metric
    ]
    return np.concatenate(flags) if flags else np.zeros(0, np.float32)
