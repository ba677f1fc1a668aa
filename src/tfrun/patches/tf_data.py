"""Distributed datasets: `tfrun.Dataset` among them, and plain pipelines in less time."""

from __future__ import annotations

import os

import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.keras import division, plain_pipelines
from tfrun.data.keras.distributed import DistributedView
from tfrun.data.ledger import writer as ledger
from tfrun.data.order import repeatable
from tfrun.data.order.shards import Replicas
from tfrun.engine import adoption
from tfrun.job.world import fixed_replicas, world
from tfrun.train import loop_data


def distribute_ours(original):
    """A strategy takes a `tfrun.Dataset` wherever it takes a `tf.data.Dataset`."""

    def experimental_distribute_dataset(self, dataset, options=None):
        if isinstance(dataset, Dataset):
            return loop_data.distributed(dataset, lambda: DistributedView(dataset, self), self)
        ledger.not_covered(
            "a tf.data pipeline, distributed by a strategy",
            "its samples have no numbers; use tfrun.Dataset",
        )

        def made():
            # TensorFlow's default strategy gives back what it gets.
            return plain_pipelines.for_one(original(self, dataset, options))

        return loop_data.distributed(dataset, made, self)

    return experimental_distribute_dataset


def read_by_rows(original):
    """Distributed datasets read plain pipelines by rows, and know the size of their batches.

    tensorflow/python/distribute/input_lib.py rebatches a dataset and shards it by worker there.
    """

    def _create_cloned_datasets_from_dataset(
        self, dataset, input_context, input_workers, strategy, num_replicas_in_sync
    ):
        found, here, in_pieces = None, None, False
        if input_context is not None:
            here = Replicas.of(input_context)
        if here is not None and fixed_replicas():
            whom = division.of_call(strategy, "strategy.experimental_distribute_dataset")
            here = division.mine(strategy, input_context, whom)
            num_replicas_in_sync = here.total
            in_pieces = whom == "replicas"
        on_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
        if plain_pipelines.is_wanted() and not on_servers:
            found = plain_pipelines.by_numbers(dataset)
            dataset = dataset if found is None else found.numbers
            if found is None and strategy is adoption.given():
                dataset = plain_pipelines.shared_by_batch(dataset)
            replicas = num_replicas_in_sync or 1
            dataset = plain_pipelines.with_known_size(dataset, replicas)
            by_batch = plain_pipelines.is_by_batch(dataset, has_files=found is None)
            if by_batch and here is not None and plain_pipelines.has_one_size(dataset, replicas):
                self._enable_get_next_as_optional = False
        if here is not None and here.total > 1 and not in_pieces:
            in_pieces = division.is_cut(dataset)
        if here is not None and in_pieces:
            self._cloned_datasets = [division.pieces(dataset, here)]
        else:
            original(self, dataset, input_context, input_workers, strategy, num_replicas_in_sync)
        if found is not None:
            self._cloned_datasets = [found.read(numbers) for numbers in self._cloned_datasets]
        elif num_replicas_in_sync != 1 and repeatable.calls_python(dataset):
            self._cloned_datasets = [
                plain_pipelines.copied(cloned) for cloned in self._cloned_datasets
            ]

    return _create_cloned_datasets_from_dataset


def note_iterations(original):
    """Whose random numbers are drawn by whom is known: see data/keras/plain_pipelines.py."""
    place = 1 if original.__name__ == "_create_iterator" else 0  # of the dataset

    def noting(*args, **kwargs):
        plain_pipelines.note(args[place] if len(args) > place else kwargs.get("dataset"))
        return original(*args, **kwargs)

    return noting


def cache_for_itself(original):
    """Each worker has cache files of its own; a lock that a dead one has left on them is gone.

    What it caches may be a part of the data, that of so many workers.
    """

    def cache(self, filename="", name=None):
        here = world()
        if here.in_job and isinstance(filename, str | os.PathLike) and os.fspath(filename):
            filename = os.fspath(filename)
            if here.size > 1:
                filename += f".worker-{here.rank}-of-{here.size}"
            if here.round:  # who had the same name in an earlier one has ended
                for lock in tf.io.gfile.glob(f"{filename}_*.lockfile"):
                    tf.io.gfile.remove(lock)
        return original(self, filename, name)

    return cache
