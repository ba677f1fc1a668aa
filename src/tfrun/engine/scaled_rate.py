"""The learning rate of a script whose batch the job has multiplied (`--scale-batch`).

The rate that the script has set, or that its callbacks set later, stays its own: it is multiplied
where an optimizer updates weights. A schedule, which counts steps of the script's batches, is asked
for the one that would come after as many samples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from tfrun.engine.script_lines import script_line
from tfrun.job.errors import UsageError
from tfrun.job.learning_rate_rules import Rule, factor
from tfrun.job.settings import settings


@dataclass(frozen=True, kw_only=True)
class RateScale:
    """How an optimizer's rate follows the batch.

    Attributes:
      rule: see learning_rate_rules.py; "none" for a rate that follows by itself.
      base_batch: the script's batch.
      batch: the global one.
      warmup_steps: of the optimizer, in which the factor rises from 1.
      steps_before: steps in so many of the script's batches …
      steps_after: … as samples are in so many global ones.
    """

    rule: Rule
    base_batch: int
    batch: int
    warmup_steps: int
    steps_before: int
    steps_after: int

    @property
    def factor(self) -> float:
        """What the rate is multiplied by after the warm-up."""
        return factor(self.rule, self.batch / self.base_batch)

    def at(self, step: Any) -> Any:
        """What the rate of a step is multiplied by, a scalar float32 tensor; steps count from 0."""
        if not self.warmup_steps:
            return ops.convert_to_tensor(self.factor, "float32")
        made: Any = ops.cast(step, "float32")
        done: Any = ops.minimum(made / self.warmup_steps, 1.0)
        return 1.0 + (self.factor - 1.0) * done

    def step_before(self, step: Any) -> Any:
        """The step that the script's batches would have come to; an integer tensor."""
        made: Any = ops.cast(step, "int64")  # int32 would overflow
        return ops.cast(made * self.steps_before // self.steps_after, step.dtype)


_scales: WeakKeyDictionary[Any, RateScale] = WeakKeyDictionary()
_updating: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of each device, one after the other


def of(optimizer: Any) -> RateScale | None:
    """How the optimizer's rate is scaled; None where it is not."""
    return _scales.get(getattr(optimizer, "inner_optimizer", optimizer))


def scale(optimizer: Any, how: RateScale) -> bool:
    """Has the optimizer's rate scaled; True where a function traced before has another one."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    before, _scales[inner] = _scales.get(inner), how
    return before is not None and before != how


def check_elsewhere(who: str) -> None:
    """Refuses updates whose batches nobody has made larger, where the job is to have larger ones.

    Raises:
      UsageError: TFRUN-107.
    """
    if settings().batch_times > 1:
        raise UsageError(
            "TFRUN-107",
            f"--scale-batch enlarges the batches of fit, and {who} updates weights elsewhere",
            where=script_line(),
            expected="a model that is trained by fit alone",
            fix="Make larger batches in the script, and leave out --scale-batch",
        )


@contextlib.contextmanager
def updating(optimizer: Any) -> Iterator[None]:
    """While it lasts, the optimizer's rate is the one of the larger batch.

    Raises:
      UsageError: see `check_elsewhere`.
    """
    if of(optimizer) is None:
        check_elsewhere(f"the optimizer {optimizer.name!r}")
    _updating[optimizer] = _updating.get(optimizer, 0) + 1
    try:
        yield
    finally:
        _updating[optimizer] -= 1


def rate(optimizer: Any, stated: Callable[[], Any]) -> Any:
    """The learning rate now; `stated` gives the script's own."""
    how = _scales.get(optimizer)
    if how is None or how.rule == "none" or not _updating.get(optimizer):
        return stated()
    schedule, step = optimizer._learning_rate, optimizer._iterations
    is_schedule = isinstance(schedule, LearningRateSchedule)
    own: Any = ops.convert_to_tensor(schedule(how.step_before(step)) if is_schedule else stated())
    return own * ops.cast(how.at(step), own.dtype)
