"""`tfrun.scaled_lr`: the learning rate that belongs to a global batch."""

from __future__ import annotations

import math
from typing import Any, Literal

import keras

from tfrun.job.errors import UsageError

Rule = Literal["linear", "sqrt", "none"]
RULES = ("linear", "sqrt", "none")


@keras.saving.register_keras_serializable("tfrun")
class ScaledLearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """A rate scaled with the global batch, reached in a linear warm-up; see `scaled_lr`.

    Attributes:
      target: the rate after the warm-up.
    """

    def __init__(
        self, base: float, *, rule: Rule, base_batch: int, batch: int, warmup_steps: int
    ) -> None:
        super().__init__()
        self.base, self.rule = base, rule
        self.base_batch, self.batch, self.warmup_steps = base_batch, batch, warmup_steps
        self.target = base * factor(rule, batch / base_batch)

    def __call__(self, step: Any) -> Any:
        """Returns the rate of a step, a scalar float32 tensor; steps count from 0."""
        if not self.warmup_steps:
            return keras.ops.convert_to_tensor(self.target, "float32")
        # A job that is already scaled down (target < base) does not warm up from above.
        start = min(self.base, self.target)
        count: Any = keras.ops.cast(step, "float32")
        done: Any = keras.ops.minimum(count / self.warmup_steps, 1.0)
        return start + (self.target - start) * done

    def get_config(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "rule": self.rule,
            "base_batch": self.base_batch,
            "batch": self.batch,
            "warmup_steps": self.warmup_steps,
        }

    def __str__(self) -> str:
        text = f"{self.target:g} ({self.rule} rule: {self.base:g} at batch {self.base_batch})"
        return text + (f", warm-up of {self.warmup_steps} steps" if self.warmup_steps else "")


def scaled_lr(
    base: float,
    *,
    rule: Rule = "linear",
    base_batch: int,
    batch: int,
    warmup_steps: int = 0,
) -> ScaledLearningRate:
    """Returns a Keras schedule with the learning rate for a larger (or smaller) global batch.

    "linear" multiplies the rate by k = batch / base_batch: k steps of SGD with a batch of
    base_batch move the weights about as far as one step with k times the batch and rate, as long
    as the gradients of those k steps are alike. That is not so in the first steps, which is what
    the warm-up is for, and it ends at some batch size (Goyal et al. 2017, "Accurate, Large
    Minibatch SGD", arXiv:1706.02677: 8,192 for ResNet-50 on ImageNet, with 5 epochs of warm-up;
    beyond it the accuracy drops). "sqrt" multiplies by the square root of k, which keeps the
    variance of a step's noise (Krizhevsky 2014, arXiv:1404.5997) and is the usual choice for Adam
    and its kin. "none" keeps the rate.

    The global batch of a tfrun job does not change with the number of workers, so neither does
    the rate; the rule is for the day the batch is raised.

    Args:
      base: the rate that works at `base_batch`.
      rule: how it grows with the batch.
      base_batch: the global batch at which `base` was found.
      batch: the global batch of this training.
      warmup_steps: steps in which the rate rises from `base` to its value.

    Raises:
      UsageError: TFRUN-607.
    """
    where = "tfrun.scaled_lr"
    if rule not in RULES:
        raise _invalid(f"{rule!r} is no rule", where, " or ".join(f'"{name}"' for name in RULES))
    if not (math.isfinite(base) and base > 0):
        raise _invalid(f"base={base!r} is no learning rate", where, "a number above 0")
    if base_batch < 1 or batch < 1:
        what = f"base_batch={base_batch!r}, batch={batch!r} are no batch sizes"
        raise _invalid(what, where, "whole numbers from 1")
    if warmup_steps < 0:
        raise _invalid(f"warmup_steps={warmup_steps!r} is below 0", where, "0 or more")
    return ScaledLearningRate(
        float(base), rule=rule, base_batch=base_batch, batch=batch, warmup_steps=warmup_steps
    )


def factor(rule: Rule, ratio: float) -> float:
    """Returns what a rule multiplies the rate by when the batch grows by `ratio`."""
    return {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[rule]


def _invalid(what: str, where: str, expected: str) -> UsageError:
    return UsageError("TFRUN-607", what, where=where, expected=expected)
