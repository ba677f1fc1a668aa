"""Plain TensorFlow and Keras on two workers: are the repaired bugs still there?"""

from __future__ import annotations

import ctypes
import json
import os

import keras
import numpy as np
import tensorflow as tf

options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1024)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def fails(run) -> str:
    try:
        run()
    except Exception as error:
        return str(error)
    return ""


def fit():
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    model.fit(np.zeros((8, 4)), np.zeros((8, 1)), verbose=0)


def packs():
    """The number of all-reduces for two tensors of 4 KB each."""

    @tf.function
    def reduce():
        def on_replica():
            pair = [tf.ones([1024]), tf.ones([1024])]
            return strategy.extended._replica_ctx_all_reduce(tf.distribute.ReduceOp.SUM, pair)

        return strategy.run(on_replica)

    graph = reduce.get_concrete_function().graph
    return sum(op.type == "CollectiveReduceV2" for op in graph.get_operations())


@tf.function
def inner():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([1])))


@tf.function
def called_in_a_condition(flag):
    return tf.cond(flag, inner, lambda: tf.zeros([1]))


def argument():
    @tf.function
    def reduce(value):
        def on_replica(value):
            return tf.distribute.get_replica_context().all_reduce("SUM", value)

        return strategy.run(on_replica, args=(value,))

    return reduce(tf.ones([1]))


class Info(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]


def allocator() -> list[bool] | None:
    """What malloc does once there has been a GeneratorDataset; None without glibc 2.33.

    Whether it maps a buffer of 1 MB anew, and whether it gives 256 MB back to the system.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return None
    signature = tf.TensorSpec((), tf.int32)
    next(iter(tf.data.Dataset.from_generator(lambda: iter((0,)), output_signature=signature)))
    libc.mallinfo2.restype = Info
    libc.malloc.restype = ctypes.c_void_p

    def allocate(count: int, size: int) -> tuple[int, int]:
        """The regions that were mapped for one allocation each, and the bytes given back."""
        before = libc.mallinfo2()
        kept = [libc.malloc(ctypes.c_size_t(size)) for _ in range(count)]
        there = libc.mallinfo2()
        for each in kept:
            libc.free(ctypes.c_void_p(each))
        after = libc.mallinfo2()
        # field0: bytes of the heap; field4: mapped bytes.
        given_back = there.field0 + there.field4 - after.field0 - after.field4
        return there.field3 - before.field3, given_back

    return [allocate(4, 1 << 20)[0] > 0, allocate(1, 256 << 20)[1] > 0]


results = {
    "packs": packs(),
    "argument": fails(argument),
    "function in a condition": fails(lambda: called_in_a_condition(tf.constant(True))),
    "fit": fails(fit),
    "allocator": allocator(),
}
with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
    json.dump(results, file)
