"""Puts tfrun's part around Keras's own methods, once per process."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.trainer import Trainer
from tensorflow.python.saved_model import load as upstream_load
from tensorflow.python.saved_model import save as upstream_save

from tfrun.data.keras import feed
from tfrun.engine import adoption, script_place
from tfrun.engine.local_mode import in_local_mode, note_assignment
from tfrun.patches import folders
from tfrun.ps import keras_methods as parameter_server
from tfrun.train import fit, loaded_weights, loading, own_saves, saving, tf_checkpoints

Runner = Callable[..., Any]

_LOOPS: dict[str, Runner] = {
    "fit": fit.run_fit,
    "evaluate": fit.run_evaluate,
    "predict": fit.run_predict,
    "train_on_batch": fit.run_train_on_batch,
    "test_on_batch": fit.run_on_batch,
    "predict_on_batch": fit.run_predict_on_batch,
}

# What a call on one batch runs. Once it is traced, it uses what it used then.
_ON_BATCH = {
    "train_on_batch": "train_function",
    "test_on_batch": "test_function",
    "predict_on_batch": "predict_function",
}


def install() -> None:
    """Makes Keras's models work together with the other workers. Runs no op; idempotent.

    Models that are not shared by several workers keep Keras's behaviour.
    """
    if hasattr(keras.Model.fit, "_tfrun_original"):
        return
    feed.install()
    feed.for_strategy(parameter_server.epochs_of)
    parameter_server.install()
    folders.let_others_make_them()
    loading.install()
    for name, run in _LOOPS.items():
        _replace(keras.Model, name, functools.partial(_around_method, run, name))
    # Keras compares a model's `compile` with its own: it is the class that has it that changes.
    _replace(Trainer, "compile", _around_compile)
    for name in ("save", "save_weights", "export"):
        _replace(keras.Model, name, _around_saving)
    _replace(keras.Model, "load_weights", functools.partial(_around, _load_into))
    _replace(keras.Variable, "assign", _around_assigning)
    # The same functions again under Keras's public names, and under those of `tf.keras`;
    # `from tensorflow.keras.models import …` makes another module of what `saving_api` has then.
    for name in ("keras.models", "keras.saving"):
        for module in ("keras.src.saving.saving_api", name, f"keras._tf_keras.{name}"):
            _replace_functions(importlib.import_module(module))
    for name in ("save", "write"):
        _replace(tf.train.Checkpoint, name, functools.partial(_around, tf_checkpoints.run_save))
    for name in ("restore", "read"):
        _replace(tf.train.Checkpoint, name, functools.partial(_around, _load_into))
    _replace(
        tf.train.CheckpointManager,
        "save",
        functools.partial(_around, tf_checkpoints.run_manager_save),
    )
    # `from tensorflow.saved_model import …` makes another module of the same functions.
    for module in (upstream_save, tf.saved_model, tf.compat.v2.saved_model):
        _replace(module, "save", functools.partial(_around, tf_checkpoints.run_saved_model))
    for module in (upstream_load, tf.saved_model, tf.compat.v2.saved_model):
        _replace(module, "load", functools.partial(_around, _load))


def _replace_functions(module: Any) -> None:
    for name in ("save_model", "save_weights"):
        _replace(module, name, _around_saving)
    _replace(module, "load_model", functools.partial(_around, _load))
    _replace(module, "load_weights", functools.partial(_around, _load_into))


def _replace(owner: Any, name: str, around: Callable[[Runner], Runner]) -> None:
    original = getattr(owner, name, None)
    if original is None:  # a name of newer Keras versions, or of the other module
        return
    if hasattr(original, "_tfrun_original"):  # one module under two names
        return
    wrapper = functools.wraps(original)(around(original))
    wrapper._tfrun_original = original  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


def _around_compile(original: Runner) -> Runner:
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if tf.distribute.has_strategy() and not in_local_mode():
            adoption.settle(self)
        return result

    return compile


def _around_method(run: Runner, name: str, original: Runner) -> Runner:
    function = _ON_BATCH.get(name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with script_place.calling(f"model.{name}"):
            settled = function is not None and getattr(self, function) is not None
            if not (settled and self._distribute_strategy is not None) and not in_local_mode():
                adoption.settle(self)
            return run(original, self, args, kwargs)

    return method


def _around(run: Runner, original: Runner) -> Runner:
    signature = inspect.signature(original)

    def function(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)  # whatever the script has named
        return run(original, *call.args, **call.kwargs)

    return function


def _around_assigning(original: Runner) -> Runner:
    def assign(self: Any, value: Any) -> Any:
        note_assignment(self)
        return original(self, value)

    return assign


def _around_saving(original: Runner) -> Runner:
    def save(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        return saving.run_save(original, model, filepath, args, kwargs)

    return save


def _load(original: Runner, path: Any, *args: Any, **kwargs: Any) -> Any:
    return loading.from_chief(path, lambda: original(path, *args, **kwargs))


def _load_into(original: Runner, target: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    if path is None:  # `checkpoint.restore(None)` restores nothing
        return original(target, path, *args, **kwargs)
    loaded_weights.note()
    result = loading.from_chief(path, lambda: original(target, path, *args, **kwargs))
    own_saves.told("restored", target)
    return result
