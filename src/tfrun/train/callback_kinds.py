"""Decides which callbacks write, and which could act on a single batch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

import keras

from tfrun.job.settings import settings
from tfrun.state.callback_state import inner
from tfrun.train.chief_callbacks import ChiefOnly, RestoreEverywhere

# OrbaxCheckpoint is missing from older Keras 3 versions.
WRITERS: tuple[type, ...] = tuple(
    getattr(keras.callbacks, name)
    for name in ("ModelCheckpoint", "TensorBoard", "CSVLogger", "RemoteMonitor", "OrbaxCheckpoint")
    if hasattr(keras.callbacks, name)
)


class EpochLogs(keras.callbacks.TensorBoard):
    """Keras's callback without what it does at each step, for which the chief would be alone."""

    on_train_batch_begin = keras.callbacks.Callback.on_train_batch_begin
    on_train_batch_end = keras.callbacks.Callback.on_train_batch_end


TRAIN_BATCH = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
TEST_BATCH = ("on_test_batch_begin", "on_test_batch_end")
PREDICT_BATCH = ("on_predict_batch_begin", "on_predict_batch_end")

_PASSIVE = (
    keras.callbacks.Callback,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.History,
    keras.callbacks.ProgbarLogger,
    *WRITERS,
)


def for_tensorboard(given: Iterable[Any]) -> list[Any]:
    """What `--tensorboard` adds: Keras's own logs of each epoch, besides what the launcher writes.

    Args:
      given: the script's callbacks; it may bring its own.
    """
    folder = settings().tensorboard
    if not folder or any(isinstance(one, keras.callbacks.TensorBoard) for one in given):
        return []
    if importlib.util.find_spec("tensorboard") is None:
        return []  # Keras's callback needs it; the launcher's files do without
    return [EpochLogs(folder, write_graph=False)]


def for_this_worker(callback: Any) -> Any:
    """Returns `callback`, or what stands in for it so that only the chief writes."""
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        return RestoreEverywhere(callback)
    if isinstance(callback, WRITERS):
        return ChiefOnly(callback)
    return callback


def take_chiefs_part(callbacks: Iterable[Any], verbose: Any) -> bool:
    """Has callbacks do what the chief's do, of a worker that has become it in the midst of a `fit`.

    Args:
      callbacks: all of them.
      verbose: what `fit` was given.

    Returns:
      False where one of them has to begin anew for that: it may have a file to open.
    """
    callbacks = list(callbacks)
    writers = [one for one in callbacks if isinstance(one, ChiefOnly)]
    if not all(isinstance(one.callback, keras.callbacks.ModelCheckpoint) for one in writers):
        return False
    for one in writers:
        one.take_part()
    for one in callbacks:
        if isinstance(one, keras.callbacks.ProgbarLogger):
            one.set_params({"verbose": verbose, "epochs": one.epochs, "steps": one.target})
            one.progbar = None  # it shows nothing
    return True


def acts_on_batches(callbacks: Iterable[Any], hooks: tuple[str, ...]) -> bool:
    """True when code other than Keras's passive callbacks runs in one of `hooks`.

    Such code may set `stop_training` from what only its own worker knows. Hooks of a subclass
    that are inherited from a passive callback are passive.
    """
    return any(_function(inner(c), hook) not in _passive(hook) for c in callbacks for hook in hooks)


def reads_batch_logs(callbacks: Iterable[Any]) -> bool:
    """True when a callback looks at the logs of single steps, which then have to be global."""
    callbacks = [inner(callback) for callback in callbacks]
    return acts_on_batches(callbacks, TRAIN_BATCH) or any(
        (isinstance(c, keras.callbacks.TensorBoard) and c.update_freq != "epoch")
        or (isinstance(c, keras.callbacks.ModelCheckpoint) and c.save_freq != "epoch")
        for c in callbacks
    )


def _function(callback: Any, hook: str) -> Any:
    # LambdaCallback keeps plain functions as attributes of the instance.
    method = getattr(callback, hook, None)
    return getattr(method, "__func__", method)


def _passive(hook: str) -> set[Any]:
    return {None, *(getattr(cls, hook) for cls in _PASSIVE)}
