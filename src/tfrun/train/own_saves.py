"""Tells how far a loop of the script's own is that saves and restores by itself.

Nobody sees the steps of a loop that uses neither `fit` nor a `tfrun.TrainState`. What it puts into
a `tf.train.Checkpoint` mostly counts them: an optimizer's `iterations`, a variable of its own. So
the launcher learns that a job which is started again and again does advance.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrun.job.reports import CheckpointRestored, CheckpointSaved
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state import numbered_calls

NOT_A_STEP = "save_counter"  # TensorFlow's own, which counts the files


def told(kind: type[CheckpointSaved | CheckpointRestored], root: Any) -> None:
    """Tells how far `root`, which has been saved or restored, has come.

    Args:
      kind: which of both.
      root: the `tf.train.Checkpoint`.
    """
    if not channel.is_open() or numbered_calls.have_begun() or not world().is_chief:
        return
    if not tf.executing_eagerly() or not isinstance(root, tf.train.Checkpoint):
        return
    with contextlib.suppress(Exception):  # whatever is in it: its save or restore has worked
        if (step := step_of(root)) is not None:
            channel.emit(kind(step=step))


def step_of(root: Any) -> int | None:
    """Returns the largest whole number that a variable of its holds; None without any."""
    found: list[int] = []
    for each in tf.train.TrackableView(root).descendants():
        value = each.value if isinstance(each, keras.Variable) else each
        if not isinstance(value, tf.Variable) or value.shape.rank != 0:
            continue
        if value.synchronization == tf.VariableSynchronization.ON_READ:
            continue  # to read it needs all workers
        if value.dtype.is_integer and NOT_A_STEP not in value.name:
            found.append(int(np.asarray(value.numpy())))
    return max(found, default=None)
