"""Everything by which models and checkpoints are saved and loaded: the chief writes, all read."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from tfrun.job.reports import CheckpointRestored
from tfrun.train import loading, saving, tf_checkpoints


def save_on_chief(original):
    """Keras saves a model: see train/saving.py."""

    def save(model, filepath, *args, **kwargs):
        return saving.run_save(original, model, filepath, args, kwargs)

    return save


def load_after_chief(original):
    """Keras, or TensorFlow, loads a model: see train/loading.py."""
    return _around(_load, original)


def load_into_after_chief(original):
    """Weights are loaded, or a checkpoint is restored."""
    return _around(_load_into, original)


def save_checkpoint(original):
    """`tf.train.Checkpoint.save` and `write`: see train/tf_checkpoints.py."""
    return _around(tf_checkpoints.run_save, original)


def save_by_manager(original):
    """`tf.train.CheckpointManager.save`."""
    return _around(tf_checkpoints.run_manager_save, original)


def save_saved_model(original):
    """`tf.saved_model.save`."""
    return _around(tf_checkpoints.run_saved_model, original)


def _around(run, original):
    signature = inspect.signature(original)

    def function(*args, **kwargs):
        call = signature.bind(*args, **kwargs)  # whatever the script has named
        return run(original, *call.args, **call.kwargs)

    return function


def _load(original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    return loading.from_chief(path, lambda: original(path, *args, **kwargs))


def _load_into(original: Any, target: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    if path is None:  # `checkpoint.restore(None)` restores nothing
        return original(target, path, *args, **kwargs)
    loading.note_weights()
    result = loading.from_chief(path, lambda: original(target, path, *args, **kwargs))
    tf_checkpoints.tell_step(CheckpointRestored, target)
    return result


def let_others_make_folders(original):
    """Keras is content with a folder that is there already.

    It asks whether a folder exists, and then makes it (`file_utils.makedirs`, keras 3.15, in
    ModelCheckpoint and BackupAndRestore). Workers of one machine, or of one file system, that call
    these callbacks in a loop of their own do so at the same moment: FileExistsError.
    """

    def makedirs(path):
        try:
            original(path)
        except FileExistsError:
            if not Path(path).is_dir():
                raise

    return makedirs
