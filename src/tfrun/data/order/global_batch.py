"""What a global batch and an epoch of some data are, as far as that shows before it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import is_torch_dataloader
from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset

from tfrun.data.dataset import Dataset
from tfrun.data.keras.arrays import batch_of
from tfrun.data.keras.distributed import DistributedView
from tfrun.data.order.other_batches import Reads
from tfrun.data.order.repeatable import shuffles_batches
from tfrun.data.order.shards import steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class GlobalBatch:
    """What is known of the data.

    Attributes:
      size: samples in a global batch; None where the script batches in a way that tells nothing.
      samples: samples in an epoch; None where nobody has counted them.
      is_stated: the batch is a number that `fit` or a `tfrun.Dataset` was given, or could be.
    """

    size: int | None = None
    samples: int | None = None
    is_stated: bool = False


def of_fit(arguments: Mapping[str, Any]) -> GlobalBatch:
    """Returns the batch of a `fit`.

    Args:
      arguments: those that it was called with.
    """
    x = arguments.get("x")
    if isinstance(x, Dataset | DistributedView | tf.data.Dataset):
        return of_dataset(x)
    given = (x, arguments.get("y"), arguments.get("sample_weight"))
    leaves = tree.flatten(x)
    if not can_convert_arrays(given) or not leaves or not getattr(leaves[0], "shape", None):
        return GlobalBatch()
    samples = int(leaves[0].shape[0])
    if arguments.get("validation_data") is None:  # as keras's `train_validation_split` does
        samples = math.floor(samples * (1.0 - (arguments.get("validation_split") or 0.0)))
    size = batch_of(samples, arguments.get("batch_size"), arguments.get("steps_per_epoch"))
    return GlobalBatch(size=size, samples=samples, is_stated=True)


def of_dataset(dataset: Any) -> GlobalBatch:
    """Returns the batch of a `tfrun.Dataset`, a `tf.data.Dataset`, or a distributed one."""
    if isinstance(dataset, DistributedView):
        dataset = dataset.dataset
    if isinstance(dataset, Dataset):
        return GlobalBatch(size=dataset.batch_size, samples=dataset.samples, is_stated=True)
    if not isinstance(dataset, tf.data.Dataset):
        return GlobalBatch()
    return GlobalBatch(size=_of_pipeline(dataset))


def reads_of_fit(arguments: Mapping[str, Any], *, on_servers: bool) -> Reads:
    """Returns how a `fit` reads its data.

    Args:
      arguments: those that it was called with.
      on_servers: parameter servers' workers read it, whole batches each.
    """
    x: Any = arguments.get("x")
    given = arguments.get("steps_per_epoch")
    if isinstance(x, Dataset | DistributedView | tf.data.Dataset):
        found = reads_of(x)
    elif isinstance(x, PyDataset):
        found = Reads(steps=x.num_batches)
    elif is_torch_dataloader(x):
        found = Reads(steps=len(x) if hasattr(x, "__len__") else None)
    else:
        batch = of_fit(arguments)
        steps = steps_per_epoch(batch.samples, batch.size) if batch.samples and batch.size else None
        found = Reads(batch=batch.size, samples=batch.samples, steps=steps, exact=True)
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
    return found if found > 0 else None
