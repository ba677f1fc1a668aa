"""Puts tfrun's part around Keras's own methods, once per process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from tfrun.data import keras_feed
from tfrun.train import folders, loops, saving
from tfrun.train.local_mode import note_assignment
from tfrun.train.parameter_server import install as parameter_server

Runner = Callable[..., Any]

_LOOPS: dict[str, Runner] = {
    "fit": loops.run_fit,
    "evaluate": loops.run_evaluate,
    "predict": loops.run_predict,
    "train_on_batch": loops.run_train_on_batch,
    "test_on_batch": loops.run_on_batch,
    "predict_on_batch": loops.run_on_batch,
}


def install() -> None:
    """Makes Keras's models work together with the other workers. Runs no op; idempotent.

    Models that are not shared by several workers keep Keras's behaviour.
    """
    if hasattr(keras.Model.fit, "_tfrun_original"):
        return
    keras_feed.install()
    keras_feed.for_strategy(parameter_server.epochs_of)
    parameter_server.install()
    folders.let_others_make_them()
    for name, run in _LOOPS.items():
        _replace(keras.Model, name, functools.partial(_around_method, run))
    for name in ("save", "save_weights", "export"):
        _replace(keras.Model, name, _around_saving)
    _replace(keras.Model, "load_weights", _around_loading_into)
    _replace(keras.Variable, "assign", _around_assigning)
    # The same functions again under Keras's public names.
    for module in (keras.models, keras.saving):
        for name in ("save_model", "save_weights"):
            _replace(module, name, _around_saving)
        _replace(module, "load_model", _around_loading)
        _replace(module, "load_weights", _around_loading_into)


def _replace(owner: Any, name: str, around: Callable[[Runner], Runner]) -> None:
    original = getattr(owner, name, None)
    if original is None:  # a name of newer Keras versions, or of the other module
        return
    wrapper = functools.wraps(original)(around(original))
    wrapper._tfrun_original = original  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


def _around_method(run: Runner, original: Runner) -> Runner:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(original, self, args, kwargs)

    return method


def _around_assigning(original: Runner) -> Runner:
    def assign(self: Any, value: Any) -> Any:
        note_assignment(self)
        return original(self, value)

    return assign


def _around_saving(original: Runner) -> Runner:
    def save(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        return saving.run_save(original, model, filepath, args, kwargs)

    return save


def _around_loading(original: Runner) -> Runner:
    def load(filepath: Any, *args: Any, **kwargs: Any) -> Any:
        saving.wait_until_written(filepath)
        return original(filepath, *args, **kwargs)

    return load


def _around_loading_into(original: Runner) -> Runner:
    def load(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        saving.wait_until_written(filepath)
        return original(model, filepath, *args, **kwargs)

    return load
