"""Reads files by position in a graph, as workers of a parameter-server job run no Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def read_files(source: Any, arguments: Sequence[tf.Tensor], resource: Sequence[Any]) -> Any:
    """Returns (paths, contents), strings of shape [k]."""
    del source, resource
    paths = arguments[0]
    return paths, tf.map_fn(tf.io.read_file, paths, fn_output_signature=tf.string)


def read_records(source: Any, arguments: Sequence[tf.Tensor], resource: Sequence[Any]) -> tf.Tensor:
    """Returns records of TFRecord files, strings of shape [k].

    Args:
      source: not needed.
      arguments: paths, strings of shape [k]; and int64 of shape [k, 3]: the first byte of each
        record's data, its length, and how many bytes of the file follow it.
      resource: not needed.
    """
    del source, resource
    paths, places = arguments[0], arguments[1]

    def one(path, place):
        # The only reader of TensorFlow's that can begin in the middle of a file.
        return tf.data.FixedLengthRecordDataset(
            path,
            record_bytes=place[1],
            header_bytes=place[0],
            footer_bytes=place[2],
            buffer_size=tf.minimum(place[1] + 1, 1 << 20),
        )

    slices: Any = tf.data.Dataset.from_tensor_slices((paths, places))
    made = slices.flat_map(one)
    count = tf.shape(paths, tf.int64)[0]
    rows = made.batch(count).get_single_element()
    rows.set_shape([None])
    return rows
