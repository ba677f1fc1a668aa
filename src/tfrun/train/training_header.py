"""Begins a training: tells its learning rate the global batch, and a person both."""

from __future__ import annotations

from typing import Any

import keras

from tfrun.data.order.other_batches import Reads
from tfrun.engine import compression, variable_values
from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.train.learning_rate import ScaledLearningRate, schedule_of


def bind(optimizer: Any, reads: Reads) -> None:
    """Tells the optimizer's schedule the batch.

    Raises:
      UsageError: TFRUN-607 where it needs one and the data does not tell.
    """
    schedule = schedule_of(optimizer)
    if isinstance(schedule, ScaledLearningRate):
        schedule.begin(reads.batch)


def tell(optimizer: Any, reads: Reads, strategy: Any | None) -> None:
    """Reports the training to the launcher, from the chief.

    Args:
      optimizer: a Keras optimizer, or None.
      reads: how it reads its data.
      strategy: its multi-worker strategy, None for one worker alone.
    """
    if not channel.is_open() or not world().is_chief:
        return
    channel.emit(
        reports.Training(
            global_batch=reads.batch,
            samples=reads.samples,
            workers=1 if strategy is None else world().size,
            rate=rate_of(optimizer),
            compression=compression.shown(strategy),
        )
    )


def rate_of(optimizer: Any) -> dict[str, Any]:
    """What a person is told of the learning rate, as JSON; empty when there is nothing to tell."""
    rate = schedule_of(optimizer)
    if isinstance(rate, ScaledLearningRate):
        return rate.describe()
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return {"schedule": type(rate).__name__}
    if isinstance(rate, keras.Variable):
        return {"rate": float(variable_values.copies(rate)[0].numpy())}
    return {"rate": float(rate)} if isinstance(rate, int | float) else {}
