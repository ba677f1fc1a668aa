"""`--steps-per-execution`: decides how many steps of a `fit` go into one execution.

Between two calls of the train function Python takes about a millisecond for Keras's and tfrun's
bookkeeping, in which the worker's core computes nothing. A small model's step is not much longer.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from tfrun.checkpoint import when_due
from tfrun.engine import multi_step_function as executions
from tfrun.engine.agree import from_chief
from tfrun.engine.local_mode import in_local_mode
from tfrun.engine.multi_step_function import Executions
from tfrun.engine.scopes import default_strategy
from tfrun.job.settings import WorkerSettings, settings
from tfrun.ps import server_strategy
from tfrun.state.callback_state import inner
from tfrun.train import callback_kinds, trial

SCRIPT, AUTO = "script", "auto"

UNTIMED, TIMED = 4, 24  # executions of one step: at first the caches are cold
SHARE = 0.02  # of a step: so much Python is worth nobody's trouble
LONGEST = 0.1  # seconds of an execution: so long nobody can stop the training
MOST = 32


def chosen(step: float, python: float) -> int:
    """Returns the fewest steps that bring Python's part of each down to `SHARE`.

    Args:
      step: seconds from one step to the next.
      python: seconds of it that were spent outside the step's graph.
    """
    graph = max(step - python, 1e-9)
    if python <= SHARE * step:
        return 1
    return max(1, min(math.ceil(python / (SHARE * graph)), int(LONGEST / step), MOST))


def room(step: int, every: Iterable[int]) -> int:
    """Returns how many steps there are until something is due.

    Args:
      step: steps that are done.
      every: after multiples of these numbers of steps.
    """
    return min((n - step % n for n in every), default=MOST)


def sees_every_step(callbacks: Iterable[Any]) -> bool:
    """True when a callback does something at single steps that Keras's own would not have it do."""
    found = [inner(callback) for callback in callbacks]
    if callback_kinds.acts_on_batches(
        found, callback_kinds.TRAIN_BATCH
    ) or callback_kinds.reads_batch_logs(found):
        return True
    for callback in found:
        if getattr(callback, "save_freq", "epoch") != "epoch":
            return True
        if isinstance(callback, keras.callbacks.TensorBoard) and (
            callback.write_steps_per_second or getattr(callback, "_should_trace", True)
        ):  # keras/src/callbacks/tensorboard.py: what it has made of `profile_batch`
            return True
    return False


class FitPace:
    """The executions of one `fit`, see `Pace` in data/keras/fit_plan.py.

    Args:
      steps: of an execution; None to measure what is best.
      every: executions end at multiples of these steps.
      clock: seconds that only grow.
    """

    def __init__(
        self,
        executions: Executions,
        strategy: Any | None,
        steps: int | None,
        every: Iterable[int] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._executions, self._strategy, self._clock = executions, strategy, clock
        self._steps, self._every = steps, tuple(every)
        self._done = 0  # steps of the training, so that what is due at some of them can be told
        self._rows: list[tuple[float, float]] = []  # seconds of steps, and of those outside Python
        self._before: tuple[float, float] | None = None
        executions.steps = 1

    @property
    def steps(self) -> int:
        """Steps of the execution that runs, or comes next."""
        return self._executions.steps

    def stands_at(self, step: int) -> None:
        """So many steps of the training are done."""
        self._done = step

    def most(self) -> int:
        if not self._executions.is_made:
            return 1
        if self._steps is None:
            self._measure()
        return min(self._steps or 1, room(self._done, self._every))

    def begins(self, steps: int) -> None:
        self._executions.steps = steps

    def _measure(self) -> None:
        now = self._clock(), self._executions.seconds()
        if self._before is not None:
            self._rows.append((now[0] - self._before[0], now[1] - self._before[1]))
        self._before = now
        if len(self._rows) == UNTIMED + TIMED:
            # The median: between some of them an epoch ended, or a snapshot was written.
            rows = self._rows[UNTIMED:]
            step, graph = (statistics.median(row[i] for row in rows) for i in (0, 1))
            steps = np.array([chosen(step, step - graph)], np.int64)
            if self._strategy is not None:
                (steps,) = from_chief(self._strategy, [steps])
            self._steps = int(steps[0])


def every_so_many_steps(mine: WorkerSettings) -> list[int]:
    """Returns after which multiples of steps something is due that wants to see the state."""
    steps = [int(mine.snapshots) if mine.snapshots.isdecimal() else 0, mine.sync_check]
    if mine.checkpoint_dir and mine.checkpoint_every != "off":
        steps.append(when_due.parse(mine.checkpoint_every).steps or 0)
    return [n for n in steps if n]


def pace_of(model: Any, strategy: Any | None, *, sees_steps: bool) -> FitPace | None:
    """The pace of a `fit` that is about to begin; None for Keras's own.

    `sees_steps` says that some callback of some worker does something at single steps.
    """
    text = settings().steps_per_execution
    is_auto = text == AUTO
    is_elsewhere = in_local_mode() or server_strategy.strategy_of(model) is not None
    wanted = text != SCRIPT and trial.running() is None and not is_elsewhere
    if is_auto:  # what the script says is what it means
        wanted = wanted and model.steps_per_execution == 1 and not sees_steps
    if not wanted or not executions.can_count(model):
        executions.take_back(model)
        return None
    with default_strategy():
        counted = executions.give(model)
    every = every_so_many_steps(settings())
    return FitPace(counted, strategy, None if is_auto else int(text), every)
