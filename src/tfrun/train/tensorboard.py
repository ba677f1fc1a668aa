"""`--tensorboard`: Keras's own logs of each epoch, besides what the launcher writes."""

from __future__ import annotations

import importlib.util
from typing import Any

import keras

from tfrun.job.settings import settings


class EpochLogs(keras.callbacks.TensorBoard):
    """Keras's callback without what it does at each step, for which the chief would be alone."""

    on_train_batch_begin = keras.callbacks.Callback.on_train_batch_begin
    on_train_batch_end = keras.callbacks.Callback.on_train_batch_end


def wanted(given: list[Any]) -> list[Any]:
    """Returns the callback, unless nobody has asked for it or the script brings its own.

    Args:
      given: the script's callbacks.
    """
    folder = settings().tensorboard
    if not folder or any(isinstance(one, keras.callbacks.TensorBoard) for one in given):
        return []
    if importlib.util.find_spec("tensorboard") is None:
        return []  # Keras's callback needs it; the launcher's files do without
    return [EpochLogs(folder, write_graph=False)]
