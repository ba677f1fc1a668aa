"""Finds the global batch and the epoch of some data, as far as that is possible before reading."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import is_torch_dataloader
from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset

from tfrun.data.dataset import Dataset
from tfrun.data.keras import in_turn
from tfrun.data.keras.arrays import batch_of
from tfrun.data.keras.distributed import DistributedView
from tfrun.data.keras.larger_batches import size_of
from tfrun.data.order.other_batches import Reads
from tfrun.data.order.repeatable import shuffles_batches
from tfrun.data.order.shards import steps_per_epoch


def reads_of_fit(arguments: Mapping[str, Any], *, on_servers: bool) -> Reads:
    """Returns how a `fit` reads its data.

    Args:
      arguments: those that it was called with.
      on_servers: parameter servers' workers read it, whole batches each.
    """
    x: Any = in_turn.given(arguments.get("x"))
    given = arguments.get("steps_per_epoch")
    if isinstance(x, Dataset | DistributedView | tf.data.Dataset):
        found = reads_of(x)
    elif isinstance(x, PyDataset):
        found = Reads(steps=x.num_batches)
    elif is_torch_dataloader(x):
        found = Reads(steps=len(x) if hasattr(x.dataset, "__len__") else None)
    else:
        found = _reads_of_arrays(arguments)
    whole = given is None or given == found.steps
    exact = found.exact and not on_servers
    return replace(found, steps=given or found.steps, whole=whole, exact=exact)


def reads_of(dataset: Any) -> Reads:
    """Returns how an epoch of a `tfrun.Dataset`, or of a pipeline, is read."""
    if isinstance(dataset, DistributedView):
        dataset = dataset.dataset
    if isinstance(dataset, Dataset):
        exact = not dataset.is_by_file
        return Reads(
            batch=dataset.batch_size,
            samples=dataset.samples,
            steps=dataset.steps_per_epoch,
            exact=exact,
            ordered=exact,
        )
    if not isinstance(dataset, tf.data.Dataset):
        return Reads()
    steps = int(dataset.cardinality())
    size, ordered = _of_pipeline(dataset), not shuffles_batches(dataset)
    return Reads(batch=size, steps=steps if steps >= 0 else None, ordered=ordered)


def _reads_of_arrays(arguments: Mapping[str, Any]) -> Reads:
    x = arguments.get("x")
    given, leaves = (x, arguments.get("y"), arguments.get("sample_weight")), tree.flatten(x)
    if not can_convert_arrays(given) or not leaves or not getattr(leaves[0], "shape", None):
        return Reads(exact=True)
    samples = int(leaves[0].shape[0])
    if arguments.get("validation_data") is None:  # as keras's `train_validation_split` does
        samples = math.floor(samples * (1.0 - (arguments.get("validation_split") or 0.0)))
    batch = batch_of(samples, arguments.get("batch_size"), arguments.get("steps_per_epoch"))
    steps = steps_per_epoch(samples, batch) if samples and batch else None
    return Reads(batch=batch, samples=samples, steps=steps, exact=True)


def _of_pipeline(dataset: Any) -> int | None:
    """What `tf.distribute` itself asks before it shares a batch out among the replicas."""
    shapes = [spec.shape for spec in tree.flatten(dataset.element_spec) if hasattr(spec, "shape")]
    known = {shape[0] for shape in shapes if shape.rank}
    if len(known) == 1 and None not in known:
        return known.pop()
    try:
        found = int(tf.raw_ops.ComputeBatchSize(input_dataset=dataset._variant_tensor))  # type: ignore
    except tf.errors.OpError:
        return None
    return found if found > 0 else size_of(dataset)
