"""`--scale-batch`: the batch of a script for one process times the workers, and its learning rate.

The script stays as it is. What it counts in steps (a schedule, `steps_per_epoch`) comes as far in
as many samples as before.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any

import keras
import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.keras import global_batch
from tfrun.data.keras.larger_batches import larger
from tfrun.data.order.other_batches import Reads
from tfrun.engine import adopted_script, adoption, scaled_rate, variable_values
from tfrun.engine.script_lines import script_line
from tfrun.job.errors import UsageError
from tfrun.job.learning_rate_rules import Rule
from tfrun.job.settings import settings
from tfrun.train.learning_rate import ScaledLearningRate, schedule_of

_BATCH = 32  # Keras's
_FIX = "Make larger batches in the script, and leave out --scale-batch"


def scale(model: Any, arguments: MutableMapping[str, Any], strategy: Any | None) -> int | None:
    """Enlarges the batches of a `fit`, and its optimizers' rates, where the job asks for it.

    Args:
      model: that is to be trained.
      arguments: of the call; they are changed.
      strategy: the model's, for several workers; None for one alone.

    Returns:
      The script's own batch; None where nothing is changed.

    Raises:
      UsageError: TFRUN-107, for data whose batches tfrun does not make, and for scripts that may
        have followed the number of workers themselves.
    """
    times = settings().batch_times
    if times <= 1:
        return None
    _check_strategy(model, strategy)
    before = global_batch.reads_of_fit(arguments, on_servers=False)
    base = _enlarge(arguments, before, times)
    if steps := arguments.get("steps_per_epoch"):
        arguments["steps_per_epoch"] = math.ceil(steps / times)
    after = global_batch.reads_of_fit(arguments, on_servers=False)
    batch = after.batch or times * base
    steps_before, steps_after = before.steps or 0, after.steps or 0
    if steps_before and not steps_after:
        steps_after = math.ceil(steps_before / times)
    has_changed = False
    for optimizer in variable_values.optimizers_of(model):
        known_before = scaled_rate.of(optimizer)
        how = scaled_rate.RateScale(
            rule=_rule(optimizer, batch),
            base_batch=base,
            batch=batch,
            # A later `fit` goes on where the warm-up of the first one has come to.
            warmup_steps=known_before.warmup_steps if known_before else steps_after,
            steps_before=steps_before or batch,
            steps_after=steps_after if steps_before else base,
        )
        has_changed |= scaled_rate.scale(optimizer, how)
    if has_changed:
        model.train_function = None  # numbers of before are in it
    return base


def _enlarge(arguments: MutableMapping[str, Any], reads: Reads, times: int) -> int:
    """Returns the script's own batch, at most all of its samples."""
    x: Any = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        made = larger(x, times, reads.batch)
        if made is None:
            raise _unfit(
                "nothing says how large the batches of this pipeline are, or they are of "
                "different shapes"
            )
        arguments["x"] = made.dataset
        return made.batch
    if isinstance(x, Dataset) or reads.samples is None:
        raise _unfit(f"{type(x).__name__} makes its batches itself")
    stated, steps = arguments.get("batch_size"), arguments.get("steps_per_epoch")
    own = stated or (math.ceil(reads.samples / steps) if steps else _BATCH)
    arguments["batch_size"] = times * own
    if not arguments.get("validation_batch_size"):  # else Keras takes that of the training
        arguments["validation_batch_size"] = stated or _BATCH
    return min(own, max(reads.samples, 1))


def _unfit(what: str) -> UsageError:
    return UsageError(
        "TFRUN-107",
        f"--scale-batch cannot enlarge these batches: {what}",
        where=script_line(),
        expected="arrays, or a tf.data pipeline with batches of one size",
        fix=_FIX,
    )


def _check_strategy(model: Any, strategy: Any | None) -> None:
    """Refuses a script that knows of replicas: its batch may have followed their number."""
    own = adopted_script.asked_for()
    stated = strategy or model._distribute_strategy
    if not own and stated is not None and stated is not adoption.given():
        own = type(stated).__name__
    if own:
        raise UsageError(
            "TFRUN-107",
            f"--scale-batch is for scripts that name no strategy, but this one has {own}: its "
            "batch may already follow the number of workers",
            where=script_line(),
            expected="no strategy in the script",
            fix="Multiply the batch in the script by strategy.num_replicas_in_sync, use "
            "tfrun.scaled_lr, and leave out --scale-batch",
        )


def _rule(optimizer: Any, batch: int) -> Rule:
    """The usual rule: linear for SGD, the square root for Adam and its kin."""
    schedule = schedule_of(optimizer)
    if isinstance(schedule, ScaledLearningRate):
        stated = schedule.get_config()["batch"]
        if stated not in (None, batch):
            raise UsageError(
                "TFRUN-107",
                f"tfrun.scaled_lr states batch={stated}, but --scale-batch makes it {batch}",
                where=script_line(),
                expected="one of the two to say how large the batch is",
                fix="Leave out batch= of scaled_lr, or --scale-batch",
            )
        return "none"  # it follows the batch by itself
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return "linear" if isinstance(inner, keras.optimizers.SGD) else "sqrt"
