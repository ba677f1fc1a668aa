"""Keras and `tf.distribute` take a `tfrun.Dataset` wherever they take a `tf.data.Dataset`."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from keras.src.trainers.data_adapters import data_adapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

from tfrun.data import errors
from tfrun.data.dataset import Dataset
from tfrun.data.distributed import DistributedView, Feed


def install() -> None:
    """Teaches Keras's trainer and every strategy about `tfrun.Dataset`; once. Runs no op."""
    if issubclass(trainer.TFEpochIterator, FeedEpochIterator):
        return
    # `fit`, `evaluate` and `predict` look the class up under this name each time.
    trainer.TFEpochIterator = FeedEpochIterator
    for cls in (tf.distribute.Strategy, tf.compat.v1.distribute.Strategy):
        original = cls.experimental_distribute_dataset
        if not hasattr(original, "_tfrun_original"):
            cls.experimental_distribute_dataset = _distributing(original)


def _distributing(original):
    @functools.wraps(original)
    def experimental_distribute_dataset(self, dataset, options=None):
        if isinstance(dataset, Dataset):
            return DistributedView(dataset, self)
        return original(self, dataset, options)

    experimental_distribute_dataset._tfrun_original = original  # type: ignore[attr-defined]
    return experimental_distribute_dataset


class FeedAdapter(data_adapter.DataAdapter):
    """Keras's view of a feed: it has a length and needs no conversion."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def get_tf_dataset(self) -> Feed:
        return self.feed

    @property
    def num_batches(self) -> int:
        return self.feed.epoch_steps

    @property
    def batch_size(self) -> int:
        return self.feed.dataset.batch_size

    @property
    def has_partial_batch(self) -> bool:
        return self.feed.dataset.samples % self.feed.dataset.batch_size > 0

    @property
    def partial_batch_size(self) -> int:
        return self.feed.dataset.samples % self.feed.dataset.batch_size


class FeedEpochIterator(trainer.TFEpochIterator):
    """Keras's own epoch iterator, but for a `tfrun.Dataset`."""

    def __init__(self, distribute_strategy=None, *args: Any, **kwargs: Any) -> None:
        dataset = kwargs.get("x")
        self._feed = None
        if isinstance(dataset, Dataset):
            self._feed = _feed(dataset, distribute_strategy, kwargs)
            kwargs = {**kwargs, "x": FeedAdapter(self._feed), "class_weight": None}
        super().__init__(distribute_strategy, *args, **kwargs)

    def _enumerate_iterator(self):
        if self._feed is None:
            yield from super()._enumerate_iterator()
        else:
            yield from self._feed.executions()

    def reset(self) -> None:
        super().reset()
        if self._feed is not None:
            self._feed.rewind()

    @contextlib.contextmanager
    def catch_stop_iteration(self):
        coded = self._feed.dataset.coded_errors() if self._feed else contextlib.nullcontext()
        with coded, super().catch_stop_iteration():
            yield


def _feed(dataset: Dataset, strategy: Any, options: dict[str, Any]) -> Feed:
    for name in ("y", "sample_weight"):
        if options.get(name) is not None:
            what = f"`{name}` was passed beside a tfrun.Dataset"
            raise errors.bad_argument(what, name, "samples that contain it, as (x, y, weight)")
    weights = options.get("class_weight")
    return Feed(
        dataset,
        strategy,
        # Of fit, evaluate and predict only fit passes this one, and it always does.
        training="class_weight" in options,
        epoch_steps=options.get("steps_per_epoch"),
        per_execution=options.get("steps_per_execution", 1),
        batch_function=make_class_weight_map_fn(weights) if weights is not None else None,
    )
