"""Compressed record files, each read by one replica only: `from_tfrecords(…, shard="FILE")`.

A compressed file can be read from its start only. So replica r of R reads the files r, r + R, …
whole, and spreads their records evenly over the steps of the epoch: every record comes exactly
once, in as many steps as with any other R, but which records share a step depends on R.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.sources.compressed import count_records


class FileShards:
    """The records of some compressed files, numbered through in the order of the files."""

    spec = tf.TensorSpec([], tf.string)
    sample_bytes: float | None = None

    def __init__(self, paths: list[str], compression: Literal["GZIP", "ZLIB"]) -> None:
        self._paths = paths
        self._compression: Any = compression
        self._counts = count_records(paths, compression)
        if not len(self):
            raise errors.empty(f"{len(paths)} TFRecord files")

    def __len__(self) -> int:
        return int(self._counts.sum())

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        raise NotImplementedError("a compressed file has no random access")

    def batches(
        self, replica: int, total: int, steps: int, start: int, stop: int
    ) -> tf.data.Dataset:
        """Returns (epoch, samples' numbers, samples) of a replica, for the steps [start, stop).

        Args:
          replica: which one, of `total`.
          total: replicas.
          steps: of an epoch.
          start: first step, counted over epochs.
          stop: the step before which to end.

        Raises:
          UsageError: TFRUN-612 where there are fewer files than replicas.
        """
        if len(self._paths) < total:
            raise errors.too_few_compressed_files(len(self._paths), total)
        first_epoch, first_step = divmod(start, steps)
        each, more = divmod(int(self._counts[replica::total].sum()), steps)
        nothing: Any = tf.data.Dataset.from_tensors(
            (tf.zeros([0], tf.int64), tf.zeros([0], tf.string))
        )

        def epoch_batches(epoch):
            first = tf.where(epoch == first_epoch, tf.constant(first_step, tf.int64), 0)
            passed = first * each + tf.minimum(first, more)
            sizes = tf.where(tf.range(first, steps, dtype=tf.int64) < more, each + 1, each)
            made = self._records(replica, total).skip(passed).batch(each + 1)
            made = made.rebatch(tf.cast(sizes, tf.int64)).concatenate(nothing.repeat())
            return made.take(steps - first).map(lambda numbers, rows: (epoch, numbers, rows))

        epochs = tf.data.Dataset.range(first_epoch, -(-stop // steps))
        return epochs.flat_map(epoch_batches).take(stop - start)

    def _records(self, replica: int, total: int) -> tf.data.Dataset:
        begins = np.cumsum(self._counts) - self._counts
        files: Any = tf.data.Dataset.from_tensor_slices(
            (self._paths[replica::total], begins[replica::total])
        )
        return files.flat_map(
            lambda path, begin: tf.data.TFRecordDataset(path, self._compression).enumerate(begin)
        )
