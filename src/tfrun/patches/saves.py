"""Everything by which models and checkpoints are saved and loaded: the chief writes, all read."""

from __future__ import annotations

import functools
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


def _around(run, original):
    signature = inspect.signature(original)

    def function(*args, **kwargs):
        call = signature.bind(*args, **kwargs)  # whatever the script has named
        return run(original, *call.args, **call.kwargs)

    return function


def _load(original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    return loading.from_chief(path, lambda there: original(there, *args, **kwargs))


def _load_into(original: Any, target: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    if path is None:  # `checkpoint.restore(None)` restores nothing
        return original(target, path, *args, **kwargs)
    loading.note_weights()
    result = loading.from_chief(path, lambda there: original(target, there, *args, **kwargs))
    tf_checkpoints.tell_step(CheckpointRestored, target)
    return result


# Keras, or TensorFlow, loads a model; weights are loaded, or a checkpoint is: see train/loading.py.
load_after_chief = functools.partial(_around, _load)
load_into_after_chief = functools.partial(_around, _load_into)
# `tf.train.Checkpoint.save` and `write`, `tf.train.CheckpointManager.save`, `tf.saved_model.save`:
# see train/tf_checkpoints.py.
save_checkpoint = functools.partial(_around, tf_checkpoints.run_save)
save_by_manager = functools.partial(_around, tf_checkpoints.run_manager_save)
save_saved_model = functools.partial(_around, tf_checkpoints.run_saved_model)


def let_others_make_folders(original):
    """Keras is content with a folder that is there already.

    Keras 3.15: `file_utils.makedirs`, in ModelCheckpoint and BackupAndRestore.
    """

    def makedirs(path):
        try:
            original(path)
        except FileExistsError:
            if not Path(path).is_dir():
                raise

    return makedirs
