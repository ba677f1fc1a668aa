"""Turns arrays that are passed to `fit` in a job into a `tfrun.Dataset`.

Keras shuffles arrays by a random op inside `tf.data`. How often that op has been called when an
epoch begins depends on how far threads had read ahead in iterators that were dropped, so workers,
or two runs of one script, may see different orders. Ours is a function of the seed, and goes on
from any step at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import (
    ArrayDataAdapter,
    can_convert_arrays,
)
from keras.src.utils.rng_utils import get_random_seed

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.order.permutation import Order
from tfrun.data.order.reading_plan import ReadingPlan
from tfrun.data.sources.source import ArraySource

_numbers = itertools.count()


def as_dataset(options: Mapping[str, Any]) -> Dataset | None:
    """Returns the data of a `fit` that was given arrays; None for any other data.

    Args:
      options: the arguments of Keras's epoch iterator.
    """
    x, y, weights = (options.get(name) for name in ("x", "y", "sample_weight"))
    shuffle = options.get("shuffle", False)
    if shuffle not in (True, False) or not can_convert_arrays((x, y, weights)):
        return None
    # Checks what Keras checks, and turns class weights into sample weights.
    adapter = ArrayDataAdapter(x, y, sample_weight=weights, class_weight=options["class_weight"])
    inputs = data_adapter_utils.list_to_tuple(adapter._inputs)
    leaves = tree.flatten(inputs)
    if any(leaf.shape[0] == 0 for leaf in leaves):
        raise errors.empty("model.fit, x")
    if not all(isinstance(leaf, np.ndarray | tf.Tensor) for leaf in leaves):
        return None
    source = ArraySource(tree.map_structure(_as_keras_casts, inputs))
    batch = batch_of(len(source), options.get("batch_size"), options.get("steps_per_epoch"))
    # All workers draw the same numbers, and so does the script when it runs again.
    seed = ((get_random_seed() or 0) << 20) + next(_numbers)
    order = Order(samples=len(source), seed=seed, shuffle=bool(shuffle))
    return Dataset(ReadingPlan(source=source, order=order, batch=batch))


def batch_of(samples: int, batch_size: int | None, steps_per_epoch: int | None) -> int:
    """Returns the batch that `fit` takes of arrays, as Keras documents it."""
    per_step = math.ceil(samples / steps_per_epoch) if steps_per_epoch else 32
    return min(batch_size or per_step, samples)


def _as_keras_casts(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array
