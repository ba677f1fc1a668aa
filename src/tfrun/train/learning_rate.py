"""`tfrun.scaled_lr`: the learning rate that belongs to a global batch."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from tfrun.engine import scaled_rate, variable_values
from tfrun.engine.scopes import default_strategy
from tfrun.job.errors import UsageError
from tfrun.job.learning_rate_rules import BASE_BATCH, RULES, Rule, factor

WHERE = "tfrun.scaled_lr"


@keras.saving.register_keras_serializable("tfrun")
class ScaledLearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """A rate scaled with the global batch, reached in a linear warm-up; see `scaled_lr`.

    Attributes:
      batch: the global batch; None until `fit` or `TrainState.steps` has begun.
    """

    def __init__(
        self,
        base: float,
        *,
        rule: Rule,
        base_batch: int,
        batch: int | None,
        warmup_steps: int,
        last_batch: int | None = None,
    ) -> None:
        super().__init__()
        self.base, self.base_batch = base, base_batch
        self.rule: Rule = rule
        self.warmup_steps = warmup_steps
        self._stated = batch
        # What a saved model was trained with, until its next `fit` knows better.
        self.batch = batch or last_batch
        # A step that is traced now may run with another batch later: the rate is no constant.
        self._target: tf.Variable | None = None

    @property
    def target(self) -> float:
        """The rate after the warm-up.

        Raises:
          UsageError: TFRUN-607 while the batch is not known.
        """
        if self.rule == "none":
            return self.base
        if self.batch is None:
            raise _invalid(
                "the global batch is not known yet",
                "`fit` or `TrainState.steps` to have begun with data of a known batch",
                "In any other loop, and for data whose batch cannot be told, pass batch=",
            )
        return self.base * factor(self.rule, self.batch / self.base_batch)

    def begin(self, batch: int | None) -> None:
        """A training with this global batch begins; the same on all workers.

        Args:
          batch: None where it cannot be told: then a batch has to be stated.

        Raises:
          UsageError: TFRUN-607 where it is not.
        """
        self.batch = self._stated or batch
        if self._stated or self.rule == "none":
            return
        target = self.target
        if self._target is None:
            # Not one of the strategy's: each worker has its own, and nothing is sent.
            with tf.init_scope(), default_strategy():
                self._target = tf.Variable(tf.constant(target, tf.float32), trainable=False)
        else:
            self._target.assign(target)

    def __call__(self, step: Any) -> Any:
        """Returns the rate of a step, a scalar float32 tensor; steps count from 0."""
        target: Any = self.target if self._target is None else self._target.read_value()
        target = keras.ops.convert_to_tensor(target, "float32")
        if not self.warmup_steps:
            return target
        # A job that is already scaled down (target < base) does not warm up from above.
        start: Any = keras.ops.minimum(self.base, target)
        count: Any = keras.ops.cast(step, "float32")
        done: Any = keras.ops.minimum(count / self.warmup_steps, 1.0)
        return start + (target - start) * done

    def get_config(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "rule": self.rule,
            "base_batch": self.base_batch,
            "batch": self._stated,
            "warmup_steps": self.warmup_steps,
            "last_batch": self.batch,
        }

    def describe(self) -> dict[str, Any]:
        """What a person is told of it, as JSON."""
        stated = self.get_config()
        names = ("rule", "base", "base_batch", "warmup_steps")
        return {"rate": self.target, **{name: stated[name] for name in names}}


def scaled_lr(
    base: float,
    *,
    rule: Rule = "linear",
    base_batch: int = BASE_BATCH,
    batch: int | None = None,
    warmup_steps: int = 0,
) -> ScaledLearningRate:
    """Returns a Keras schedule with the learning rate that belongs to the global batch.

    "linear" multiplies the rate by k = batch / base_batch: k steps of SGD with a batch of
    base_batch move the weights about as far as one step with k times the batch and rate, as long
    as the gradients of those k steps are alike. That is not so in the first steps, which is what
    the warm-up is for, and it ends at some batch size (Goyal et al. 2017, "Accurate, Large
    Minibatch SGD", arXiv:1706.02677: 8,192 for ResNet-50 on ImageNet, with 5 epochs of warm-up;
    beyond it the accuracy drops). "sqrt" multiplies by the square root of k, which keeps the
    variance of a step's noise (Krizhevsky 2014, arXiv:1404.5997) and is the usual choice for Adam
    and its kin. "none" keeps the rate.

    The global batch of a tfrun job does not change with the number of workers, so neither does
    the rate; the rule is for the day the batch is raised. `fit`, and `TrainState.steps` with a
    `tfrun.Dataset`, tell the schedule their batch each time that they begin, and the terminal
    shows the rate. A model that is saved and loaded keeps the rate until it is trained again.

    Args:
      base: the rate that works at `base_batch`.
      rule: how it grows with the batch.
      base_batch: the global batch at which `base` was found; by default 256, to which published
        rates usually refer.
      batch: the global batch of this training; by default that of `fit`'s data.
      warmup_steps: steps of the optimizer in which the rate rises from `base` to its value.

    Returns:
      A `keras.optimizers.schedules.LearningRateSchedule`: takes the number of a step and gives its
      rate, a scalar float32 tensor.

    Raises:
      UsageError: TFRUN-607, here, or when the rate is needed and the batch is not known.

    Example:
        ```python
        optimizer = keras.optimizers.SGD(tfrun.scaled_lr(0.1, warmup_steps=500))
        ```
    """
    if rule not in RULES:
        raise _invalid(f"{rule!r} is not a rule", " or ".join(f'"{name}"' for name in RULES))
    if not (math.isfinite(base) and base > 0):
        raise _invalid(f"base={base!r} is not a learning rate", "a number above 0")
    for name, value in (("base_batch", base_batch), ("batch", batch)):
        if value is not None and value < 1:
            raise _invalid(f"{name}={value!r} is not a batch size", "a whole number from 1")
    if warmup_steps < 0:
        raise _invalid(f"warmup_steps={warmup_steps!r} is below 0", "0 or more")
    return ScaledLearningRate(
        float(base), rule=rule, base_batch=base_batch, batch=batch, warmup_steps=warmup_steps
    )


def schedule_of(optimizer: Any) -> Any:
    """The learning rate of a Keras optimizer as it was stated: a schedule, a variable, a number."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return getattr(inner, "_learning_rate", None)  # `learning_rate` is its value now


def tell_batch(optimizer: Any, batch: int | None) -> None:
    """Tells the optimizer's schedule the global batch of the training that begins.

    Raises:
      UsageError: TFRUN-607 where it needs one and the data does not tell.
    """
    schedule = schedule_of(optimizer)
    if isinstance(schedule, ScaledLearningRate):
        schedule.begin(batch)


def rate_of(optimizer: Any) -> dict[str, Any]:
    """What a person is told of the learning rate, as JSON; empty when there is nothing to tell."""
    rate, scale = schedule_of(optimizer), scaled_rate.of(optimizer)
    if isinstance(rate, ScaledLearningRate):
        return rate.describe()
    scaled = {}
    if scale is not None:
        names = ("rule", "base_batch", "warmup_steps", "factor")
        scaled = {name: getattr(scale, name) for name in names}
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return {"schedule": type(rate).__name__, **scaled}
    if isinstance(rate, keras.Variable):
        rate = variable_values.copies(rate)[0].numpy()
    elif not isinstance(rate, int | float):
        return {}
    if scale is not None:
        scaled["base"] = float(rate)
    return {"rate": float(rate) * (scale.factor if scale else 1), **scaled}


def _invalid(what: str, expected: str, fix: str = "") -> UsageError:
    return UsageError("TFRUN-607", what, where=WHERE, expected=expected, fix=fix)
