"""One input pipeline in a process of its own, on one core; writes seconds to the first batch and
microseconds a batch (of CPU time).

data_input.py WHAT PATH: WHAT names a function below, PATH is the data's directory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute

import tfrun.data.keras.feed  # noqa: F401, as in a job's worker, which has done all its imports
from tfrun.data.dataset import Dataset
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import FOREVER, _options, batches

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
what, directory = sys.argv[1], Path(sys.argv[2])
# Arrays are read on and on, from the second epoch of 938 batches. A first epoch of records ends.
WARM_UP, BATCHES = (100, 1400) if "records" in what else (1000, 2000)
records = str(directory / "records.tfrecord")


def parse(record):
    return tf.io.decode_raw(tf.strings.substr(record, 0, 3000), tf.uint8)


def arrays(batch=64, size=1, step=0):
    data = Dataset.from_arrays((x, y), batch_size=batch, shuffle=True).prefetch(0)
    return lambda: iter(batches(data.plan, Replicas(total=size), step, FOREVER))


def arrays_of_theirs(batch=64, size=1):
    made = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().batch(batch)
    if size > 1:
        # As TensorFlow's distributed datasets do it for worker 0.
        options = tf.data.Options()
        policy = tf.data.experimental.AutoShardPolicy.DATA
        options.experimental_distribute.auto_shard_policy = policy
        made = made.with_options(options)
        sizes = distribute.batch_sizes_for_worker(batch, size, 1, 0)
        made = distribute._AutoShardDataset(made.rebatch(sizes), size, 0, size)
    return lambda: iter(made)


@tf.function
def read(iterator, batches):
    """Reads in the graph, as `fit` does: Python's `next` alone costs 50 us."""
    for _ in tf.range(batches):
        next(iterator)


def tfrecords(parse=None):
    data = Dataset.from_tfrecords(records, parse, batch_size=64, shuffle=True)
    return lambda: iter(data.tf_data())


def tfrecords_again():
    data = Dataset.from_tfrecords(records, batch_size=64, shuffle=True)
    for _ in data.tf_data():
        pass  # the checksums are checked in the first epoch
    return lambda: iter(data.tf_data(epoch=1))


def theirs(parse=None):
    made = tf.data.TFRecordDataset(records).shuffle(10_000)
    made = made.map(parse) if parse else made
    return lambda: iter(made.batch(64))


x = y = np.empty(0)
if "records" not in what:
    rng = np.random.default_rng(0)
    x = rng.random((60_000, 28, 28), np.float32)
    y = rng.integers(0, 10, 60_000)
tf.constant(1) + 1  # starts TensorFlow

begin = time.perf_counter()
made = {
    # Without autotuning, which costs each element 9 us of its own.
    "nothing": lambda: lambda: iter(tf.data.Dataset.range(1 << 60).with_options(_options())),
    "arrays": arrays,
    "arrays, resume": lambda: arrays(step=1_000_000),
    "arrays, worker 0 of 4": lambda: arrays(size=4),
    "arrays, tf.data": arrays_of_theirs,
    "arrays, tf.data, worker 0 of 4": lambda: arrays_of_theirs(size=4),
    "arrays, batch 256": lambda: arrays(256),
    "arrays, batch 256, worker 0 of 4": lambda: arrays(256, 4),
    "arrays, batch 256, tf.data": lambda: arrays_of_theirs(256),
    "arrays, batch 256, tf.data, worker 0 of 4": lambda: arrays_of_theirs(256, 4),
    "records": tfrecords,
    "records again": tfrecords_again,
    "records, tf.data": theirs,
    "records, parsed": lambda: tfrecords(parse),
    "records, parsed, tf.data": lambda: theirs(parse),
}[what]()
if what == "records again":
    begin = time.perf_counter()
iterator = made()
next(iterator)
first = time.perf_counter() - begin
read(iterator, tf.constant(WARM_UP))
begin = time.process_time()
read(iterator, tf.constant(BATCHES))
Path(os.environ["BENCH_OUT"]).write_text(
    json.dumps([first * 1e3, (time.process_time() - begin) / BATCHES * 1e6])
)
