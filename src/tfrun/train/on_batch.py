"""`train_on_batch`, `test_on_batch`, `predict_on_batch` of a model that several workers train."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras.src.backend import compute_output_spec

from tfrun.engine import replica, scaled_rate
from tfrun.engine.agree import multi_worker_strategy
from tfrun.engine.local_mode import alone, in_local_mode, on_own_batch, refused
from tfrun.job.errors import TfrunError
from tfrun.ps import server_strategy

Method = Callable[..., Any]


def run_on_batch(original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs `test_on_batch`; in local mode on this worker."""
    if in_local_mode() and multi_worker_strategy(model) is not None:
        with alone(model):
            return original(model, *args, **kwargs)
    _check_one_replica_each(model, "model.test_on_batch")
    return original(model, *args, **kwargs)


def _check_one_replica_each(model: keras.Model, call: str) -> None:
    """Refuses a call with this worker's own batch, which is one replica's.

    Raises:
      TfrunError: TFRUN-518.
    """
    turns = replica.turns_of(model.distribute_strategy)
    if turns and not turns.one_each:
        raise TfrunError(
            "TFRUN-518",
            f"{call} takes this worker's own batch, but the job has {turns.total} replicas",
            where=call,
            expected="one replica on each worker, or Keras's fit and evaluate",
            fix="Leave out --replicas, or call fit or evaluate",
        )


def run_predict_on_batch(
    original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """Runs `predict_on_batch` on this worker's own batch: its rows, each once.

    Keras runs the batch on every replica and puts all results one behind the other.
    """
    strategy = multi_worker_strategy(model)
    if strategy is None:
        outputs = original(model, *args, **kwargs)
        copies = model.distribute_strategy.num_replicas_in_sync
        if copies == 1 or server_strategy.strategy_of(model) is not None:
            return outputs
        return keras.tree.map_structure(lambda leaf: leaf[: leaf.shape[0] // copies], outputs)
    if in_local_mode():
        with alone(model):
            return original(model, *args, **kwargs)
    if not model.built:
        x: Any = inspect.signature(original).bind(model, *args, **kwargs).arguments["x"]
        symbols = keras.tree.map_structure(_symbol, x)
        with strategy.scope():
            compute_output_spec(model, symbols, training=False)
    with on_own_batch(strategy, model):
        return original(model, *args, **kwargs)


def _symbol(array: Any) -> Any:
    array = array if hasattr(array, "dtype") else np.asarray(array)
    dtype = keras.backend.standardize_dtype(array.dtype)
    return keras.KerasTensor((None, *array.shape[1:]), dtype)


def run_train_on_batch(
    original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """Runs `train_on_batch`, which one worker cannot do without the others."""
    if in_local_mode() and multi_worker_strategy(model) is not None:
        raise refused("model.train_on_batch")
    _check_one_replica_each(model, "model.train_on_batch")
    scaled_rate.check_elsewhere("model.train_on_batch")
    return original(model, *args, **kwargs)
