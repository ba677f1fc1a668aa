"""Distributed iterators that end at once when they are dropped."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops


def let_iterators_end() -> None:
    """Has the per-device half of a distributed iterator run without a tuning thread; once.

    tensorflow/python/data/ops/multi_device_iterator_ops.py gives that half no options, whatever
    the dataset's are: each iterator starts a thread that looks for better buffer sizes at growing
    intervals, up to a minute, and whose end the iterator's own waits for. `fit` then took up to
    two seconds to return, and a dropped iterator that had lived longer stalled for many. There is
    nothing to tune in it: a generator and a prefetch of a fixed size.
    """
    original = multi_device_iterator_ops._create_device_dataset
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def _create_device_dataset(*args, **kwargs):
        options = tf.data.Options()
        options.autotune.enabled = False
        return original(*args, **kwargs).with_options(options)

    multi_device_iterator_ops._create_device_dataset = _create_device_dataset
