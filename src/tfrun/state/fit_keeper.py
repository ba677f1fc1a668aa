"""Keeps, at every moment of a `fit`, a state that a successor can go on from; see keeper.py.

Keras's callbacks belong to that state: at the end of an epoch some of them may have run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data.keras.fit_plan import FitPlan
from tfrun.data.order.other_batches import ResumePoint
from tfrun.engine import commit as commits
from tfrun.engine import empty_step, script_state, state_slots, variable_values
from tfrun.state import callback_state, plain_data, random_state
from tfrun.state.callback_memory import Memory, Taken
from tfrun.state.keeper import Keeper
from tfrun.state.snapshot import Place, Snapshot


class Before(NamedTuple):
    """What stood before callbacks have seen a step begin: a step that is made again has them again.

    Attributes:
      random: what the global random generators held.
      callbacks: what callbacks remembered.
      held: what variables held that callbacks may draw from or set, by name.
    """

    random: random_state.State
    callbacks: Taken
    held: dict[str, tf.Tensor]


class FitKeeper(Keeper):
    """Keeps the state of one `fit`.

    Attributes:
      per_execution: steps of the execution of the train function that runs, or comes next.
      place: where the state stands that would be kept now, except in the middle of a step. Its
        step counts those that were made, in batches of whatever size.
      ahead: how many more these are than in batches of now, as Keras counts them.
    """

    def __init__(
        self,
        model: Any,
        commit: commits.Commit | None,
        callbacks: Sequence[Any],
        memory: Memory | None,
        plan: FitPlan,
        *,
        call: int,
    ) -> None:
        super().__init__(commit)
        self._model, self._callbacks, self._plan = model, callbacks, plan
        self._memory = memory or Memory(callbacks, model)
        self._memory.begun(callbacks)
        self._seen = 0  # samples of the epoch, when it was gone on with
        self.per_execution = 1
        self.place, self.ahead = Place(call=call), 0
        self.trained = False  # all steps of the epoch are done, its end is not
        self._stopped = False  # a callback ended the epoch before its data did
        self.began = False  # the epoch's `on_epoch_begin` has been called
        self.logs: dict[str, Any] = {}  # of the last step
        self.begun: Sequence[Any] = (
            None,
            None,
        )  # before this epoch, see `Passes`
        self._held: dict[str, tf.Tensor] = {}
        self._of_callbacks: dict[str, Any] = {}  # variables
        self._held_here: dict[str, Any] = {}  # the variables of which that is
        self._held_callbacks: Taken | None = None
        self._held_metrics: NDArray | None = None
        self._step_totals: tf.Tensor | None = None  # of the metrics, when a step began
        self._before: Before | None = None
        # What the newest step's tracing has made, as it was made: the step has not run then.
        self._as_made: dict[str, tf.Tensor] = {}
        # When it began that draws in Python, or was traced.
        self._step_random: random_state.State | None = None
        # From before an epoch's first step, or from before what comes after its last one.
        self._held_random: random_state.State | None = None
        self._ends_anew = False  # it goes on at an epoch's end, which the data has not seen yet
        self._noted = 0  # how many variables the script had made of its own
        self._unbuilt: list[Any] = []  # optimizers that their first step builds

    def goes_on(self, place: Place, at: ResumePoint) -> None:
        """A state was restored.

        Args:
          place: where it stood.
          at: where that is in the data, as it is read now.
        """
        self.ahead = place.step - at.step
        self._seen = (self._plan.reads.seen(at.step) or 0) + at.skip

    # --- what happens in `fit` ---------------------------------------------------------------

    def epoch_begins(
        self,
        epoch: int,
        step: int = 0,
        random: random_state.State | None = None,
        *,
        trained: bool = False,
    ) -> None:
        """All callbacks have seen the epoch begin.

        Args:
          epoch: its number.
          step: so many of its steps are done already.
          random: what the generators held then; None for what they hold now.
          trained: all of its steps are done, and the data has been told.
        """
        self._ends_anew = step > 0 and not trained
        self.place = self.place._replace(epoch=epoch, step=step)
        self.trained, self.began = False, True
        self.release()
        # Until a step is made: data that is passed by draws, Keras draws the order of the epoch's
        # batches before its first step, and tracing that draws the seeds of what it makes.
        self._held_random = random or random_state.take()
        self._look_at_variables()

    def callbacks_see_step(self) -> None:
        """Callbacks are about to see the next execution begin; some of the script's own do."""
        self._look_at_what_is_new()
        numbers = {n: v for n, v in self._held_here.items() if v.shape == ()}
        chosen = {**numbers, **self._ungated, **self._of_callbacks}
        held = variable_values.held(chosen)
        callbacks = self._memory.take(self._callbacks)
        self._before = Before(random=random_state.take(), callbacks=callbacks, held=held)

    def step_begins(self) -> None:
        """The next execution of the train function is about to run."""
        self._in_step = True
        commit = self._commit
        if commit is None:
            return
        self._look_at_what_is_new()
        # Between two steps of one execution nobody sees what is not gated.
        trusted = commit.per_run == 1 and (self.per_execution == 1 or not self._ungated)
        chosen = self._ungated if trusted else self._held_here
        # Not by `held`: a call less in each step.
        self._held = dict(zip(chosen, variable_values.hold(list(chosen.values())), strict=True))
        self._step_totals = None if trusted else variable_values.read(commit.totals)
        self._step_began = self._count()
        if script_state.calls_python:
            self._step_random = random_state.take()

    def is_traced(self) -> None:
        """A function has been traced that is about to run, the step's or one of the validation."""
        found = variable_values.of_script(self._model, self._variables)
        found |= variable_values.global_seed_by_name()
        new = {name: v for name, v in found.items() if name not in self._variables}
        self._as_made |= variable_values.held(new)
        self._step_random = random_state.take()  # of which tracing has drawn what it needs
        if self._step_began is not None:
            assigned = self._assigned_by_steps()
            self._ungated |= assigned
            self._held = {**variable_values.held(assigned), **self._held}
        commit = self._commit
        if commit is None or self._step_began is None or not self._unbuilt:
            return
        self._look_at_what_is_new()
        if commit.per_run == 1 and self.per_execution == 1:
            # Without what is gated by an optimizer that is built by now.
            self._held = {n: held for n, held in self._held.items() if n in self._ungated}

    def step_returned(self, steps_done: int, logs: dict[str, Any] | None) -> None:
        """The execution is over; callbacks come, which may take any time."""
        self._step_began, self._in_step = None, False
        self._held_random = self._before = None
        self._ends_anew = False
        self._held, self._step_totals = {}, None
        self._as_made, self._step_random = {}, None
        self.logs = logs or {}
        self.place = self.place._replace(step=steps_done + self.ahead)

    def epoch_trained(self) -> None:
        """The epoch's last step is done; validation and `on_epoch_end` come. Tells once."""
        if self.trained:
            return
        self.trained, self._stopped = True, bool(self._model.stop_training)
        if self._plan.ran_out and not self._stopped:
            empty_step.make(self._model, self._commit)
        if self._held_random is None or self._ends_anew:  # data may draw when its epoch ends
            self._held_random = self._random(self.place.step)
        self._hold_everything()

    def epoch_ended(self, epoch: int, *, last: bool) -> None:
        """All callbacks have seen the epoch end."""
        if last:  # what is left to do is done again if it has to be
            return
        self.place = self.place._replace(epoch=epoch + 1, step=0)
        self.ahead = self._seen = 0
        self.trained = self.began = False
        self.logs = {}
        self._held_random = random_state.take()
        self._hold_everything()

    # --- what a successor gets ---------------------------------------------------------------

    def state(self, *, whole: bool = True, traced: bool = False) -> Snapshot | None:
        """As of every keeper.

        Args:
          whole: see there.
          traced: for a process that has traced what comes next, as who stays has.
        """
        as_made = self._as_made if traced or not whole else {}
        held, place, totals = self._held, self.place, self._step_totals
        # In a process that stays the step is made again, and callbacks have seen it begin.
        before = self._before if whole else None
        # A worker that goes on in its process neither traces again, nor draws the epoch's order.
        step_random = self._step_random
        random = self._held_random if whole or not (self._in_step or step_random) else None
        if self._step_began is not None and self._commit is not None:
            done = self._count() - self._step_began
            steps = whole_steps(done, self._commit.per_run)
            if steps and (steps == self.per_execution or not self._ungated):
                held, place, totals = {}, place._replace(step=place.step + steps), None
                random = before = step_random = None
                as_made = {}
                self._look_at_what_is_new()
            elif done and len(held) < len(self._variables):
                return None
        else:
            self._look_at_what_is_new()
        arrays: dict[str, NDArray] = {}
        # Always: who begins anew in its process may make them anew, as callbacks do there.
        held = {**variable_values.held(self._of_callbacks), **held}
        if before is not None:
            held = {**held, **before.held}
        held = {**held, **as_made}
        arrays.update({name: value.numpy() for name, value in as_made.items()})
        held_callbacks = before.callbacks if before is not None else self._held_callbacks
        taken = held_callbacks or self._memory.take(self._callbacks)
        if place.step:
            arrays["metrics"] = self._metrics_held(totals)
        values = {
            "began": self.began,
            "trained": self.trained,
            "stopped": self._stopped if self.trained else bool(self._model.stop_training),
            "begun": list(self.begun),
            "reads": self._data_read(place.step - self.ahead),
            "optimizers": self._trained,
            **self._memory.kept(taken, arrays),
            **random_state.drawn(self._plan.orders, arrays),
            "agreed": self._plan.agreed,
            "logs": plain_data.encode(_plain(self.logs), arrays, "logs"),
        }
        if self._plan.sketches is not None:
            arrays["data exact"], arrays["data values"] = self._plan.sketches
        random = random or self._random(place.step, before, step_random)
        done = self.iterations()
        return self._whole(
            place, values, arrays, held=held, random=random, iterations=done, whole=whole
        )

    def _random(
        self,
        step: int,
        before: Before | None = None,
        step_random: random_state.State | None = None,
    ) -> random_state.State:
        """What the global generators held when these steps of the epoch had their batches."""
        now = before.random if before is not None else step_random or random_state.take()
        return self._plan.drawn.before(step - self.ahead) or now

    def iterations(self) -> int:
        """Steps of the optimizer, for people."""
        return iterations_of(self._model)

    # -----------------------------------------------------------------------------------------

    def _data_read(self, step: int) -> dict[str, Any]:
        seen = self._plan.reads.seen(step)
        seen = None if seen is None else max(seen, self._seen)
        return {**self._plan.reads.kept(seen), "step": step}

    def _build(self, kept: Snapshot) -> None:
        build_what_steps_make(self._model, kept)

    def _put_back(self, kept: Snapshot) -> None:
        self._memory.put_back(self._callbacks, kept.values, kept.arrays)

    @property
    def _metric_variables(self) -> Sequence[Any]:
        return self._model.metrics_variables

    def _look_at_variables(self) -> None:
        optimizers = variable_values.optimizers_of(self._model)
        self._variables = variable_values.named(self._model.variables, optimizers)
        of_script = variable_values.of_script(self._model, self._variables)
        self._noted = len(script_state.made)
        self._trained = variable_values.trained(self._model.variables, optimizers)
        self._unbuilt = [optimizer for optimizer in optimizers if not optimizer.built]
        gated = {id(v) for optimizer in optimizers for v in variable_values.trained_by(optimizer)}
        self._ungated = {
            name: v
            for name, v in self._variables.items()
            if name.startswith("model/") and id(v) not in gated
        }
        self._variables |= of_script
        self._ungated |= of_script
        besides = (*self._variables.values(), *self._model.metrics_variables)
        self._of_callbacks = callback_state.variables(self._callbacks, besides)
        self._variables |= self._of_callbacks
        self._ungated |= self._assigned_by_steps()
        # Without what one worker holds for all: between two steps it is as it was.
        slot = state_slots.Slot
        self._held_here = {n: v for n, v in self._variables.items() if not isinstance(v, slot)}

    def _assigned_by_steps(self) -> dict[str, Any]:
        """Of what callbacks hold what a step changes as well."""
        return {
            name: variable
            for name, variable in self._of_callbacks.items()
            if any(map(script_state.is_assigned_in_step, variable_values.copies(variable)))
        }

    def _look_at_what_is_new(self) -> None:
        has_new_seed = (
            variable_values.GLOBAL_SEED not in self._variables
            and variable_values.global_seed() is not None
        )
        is_new = has_new_seed or len(script_state.made) != self._noted
        is_built = self._unbuilt and any(optimizer.built for optimizer in self._unbuilt)
        if is_new or is_built:
            self._look_at_variables()

    def _hold_everything(self) -> None:
        self._look_at_variables()
        self._held = self._hold_variables()
        self._held_metrics = self._totals()
        self._held_callbacks = self._memory.take(self._callbacks)
        self._nothing_is_new()

    def _nothing_is_new(self) -> None:
        self._as_made, self._step_random = {}, None

    def _hold_variables(self) -> dict[str, tf.Tensor]:
        return variable_values.held(self._held_here)

    def release(self) -> None:
        self._held, self._held_callbacks, self._held_metrics = {}, None, None
        self._nothing_is_new()

    def _metrics_held(self, before: tf.Tensor | None) -> NDArray:
        """The metrics' sums, as of the variables that are held; `before` a step to be redone."""
        if self._held_metrics is not None:
            return self._held_metrics
        return self._totals() if before is None else before.numpy()

    def _totals(self) -> NDArray:
        if self._commit is not None:
            return self._commit.totals.numpy()
        return variable_values.metric_totals(self._model.metrics_variables)


def whole_steps(updates: int, per_step: int) -> int:
    """Returns how many steps so many updates are; 0 in the middle of one, or where nobody knows."""
    return updates // per_step if per_step and updates % per_step == 0 else 0


def iterations_of(model: Any) -> int:
    """How many steps a model has done, by its own optimizer or by the busiest of its others."""
    if steps := steps_of(getattr(model, "optimizer", None)):
        return steps
    return max(map(steps_of, variable_values.optimizers_of(model)), default=0)


def build_what_steps_make(model: Any, kept: Snapshot) -> None:
    """Makes the variables that a first step makes, as far as there were some in the kept state."""
    found, strategy = variable_values.optimizers_of(model), model.distribute_strategy
    variable_values.build(model.variables, found, kept.values["optimizers"], strategy)
    if variable_values.GLOBAL_SEED in kept.arrays:
        variable_values.build_global_seed(strategy)


def steps_of(optimizer: Any | None) -> int:
    """How many steps a Keras optimizer has done, of those that only accumulate too; 0 without one.

    Keras's `iterations` counts updates where gradients are accumulated; a step is a batch.
    """
    if optimizer is None:
        return 0
    counter = getattr(optimizer, "inner_optimizer", optimizer)._iterations
    return int(variable_values.copies(counter)[0].numpy())


def _plain(logs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in logs.items() if isinstance(value, int | float)}
