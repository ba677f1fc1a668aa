"""Compressed TFRecord files: read in sequence, by every worker or each by one replica only.

With `shard="FILE"` replica r of R reads the files r, r + R, … whole, as a compressed file can be
read from its start only, and spreads their records evenly over the steps of the epoch: every record
comes exactly once, in as many steps as with any other R, but which records share a step depends on
R. The records are counted once, and their number is kept as an index is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.sources.record_index import LENGTH, kept_or_made
from tfrun.data.sources.stream import StreamSource

_CHUNK = 1 << 20
_WINDOW = {"GZIP": 31, "ZLIB": 15}  # zlib.h, inflateInit2: which header to expect


def compressed_records(
    files: list[str],
    compression: Literal["GZIP", "ZLIB"],
    shuffle: bool,
    on_error: str,
    shard: str,
) -> StreamSource | FileShards:
    """Returns the records of compressed TFRecord files, in sequence.

    Raises:
      UsageError: TFRUN-601 (empty), TFRUN-607 for what cannot be done in sequence.
      TfrunError: TFRUN-605 (cut off or damaged).
    """
    where = "Dataset.from_tfrecords, compression"
    if compression not in ("GZIP", "ZLIB"):
        what = f"{compression!r} is not a compression"
        raise errors.bad_argument(what, where, '"GZIP" or "ZLIB"')
    if shuffle or on_error != "raise":
        what = "compressed files are read in sequence: no shuffle, and no record can be left out"
        raise errors.bad_argument(what, where, 'shuffle=False and on_error="raise"')
    if shard == "FILE":
        return FileShards(files, compression)
    samples = int(count_records(files, compression).sum())
    kind: Any = compression
    return StreamSource(lambda: tf.data.TFRecordDataset(files, kind), samples)


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
        """Returns (epoch, samples' numbers, samples) of one of `total` replicas.

        For the steps [start, stop), counted over epochs of so many `steps`.

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


def count_records(paths: Sequence[str], compression: str) -> NDArray[np.int64]:
    """Returns how many records each file has, shape [files].

    Not by TensorFlow's reader, for which a file that was cut off just ends.

    Raises:
      TfrunError: TFRUN-604 (a file is missing), TFRUN-605 (cut off or damaged).
    """
    counts = kept_or_made(paths, "count", lambda path: np.array([_count(path, compression)]))
    return np.concatenate(counts)


def _count(path: str, compression: str) -> int:
    records, rest, head = 0, 0, b""  # bytes to the record's end; what is there of a length
    try:
        for chunk in _inflated(path, compression):
            place = 0
            while place < len(chunk):
                if not rest:
                    begin = chunk[place : place + 8 - len(head)]
                    head, place = head + begin, place + len(begin)
                    if len(head) == 8:
                        records, rest, head = records + 1, LENGTH.unpack(head)[0] + 8, b""
                passed = min(rest, len(chunk) - place)
                rest, place = rest - passed, place + passed
    except (zlib.error, EOFError) as error:
        raise errors.corrupt_compressed(path, records, compression, str(error)) from None
    if rest or head:
        raise errors.corrupt_compressed(path, records, compression, "the file ends within it")
    return records


def _inflated(path: str, compression: str) -> Iterator[bytes]:
    """Yields the content, of one compressed stream or of several that follow each other."""
    inflate = zlib.decompressobj(_WINDOW[compression])
    with Path(path).open("rb") as file:
        while raw := inflate.unconsumed_tail or inflate.unused_data or file.read(_CHUNK):
            if inflate.eof:
                inflate = zlib.decompressobj(_WINDOW[compression])
            yield inflate.decompress(raw, _CHUNK)
    if not inflate.eof:
        raise EOFError("the compressed data is cut off")
