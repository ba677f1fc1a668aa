"""Undoes what the first dataset made of Python code does to a process's allocator."""

from __future__ import annotations

import ctypes
import platform

import tensorflow as tf

from tfrun.process import allocator


def undo_generator_patch() -> None:
    """Takes back what TensorFlow does to the allocator of every process that feeds a strategy.

    The first GeneratorDataset op of a process calls `mallopt(M_MMAP_THRESHOLD, 128 KB)`
    ("Memory patch applied: M_TRIM_THRESHOLD=128 kb was set.", generator_dataset_op.cc), against
    a leak in tf.data (tensorflow/tensorflow#65675). Every distributed dataset has such an op, so
    `fit` pays 5 to 15 ms a step for it. It happens once a process: here it is made to
    happen, and undone. Nothing happens without glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    # The op alone: `from_generator` traces six functions for it, which takes 40 ms.
    nothing = tf.function(lambda: 0, autograph=False).get_concrete_function()
    tf.raw_ops.GeneratorDataset(
        init_func_other_args=[],
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=nothing,
        next_func=nothing,
        finalize_func=nothing,
        output_types=[tf.int32],
        output_shapes=[()],
    )
    allocator.keep_memory(
        ctypes.CDLL(None).mallopt, allocator.tunable("glibc.malloc.mmap_threshold")
    )
