"""Data made above the strategy: tfrun's own on any number of workers, TensorFlow's on one."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

path = Path(tempfile.mkdtemp(), "some.tfrecord.gz")
with tf.io.TFRecordWriter(str(path), options="GZIP") as writer:
    for row in np.random.default_rng(0).normal(size=(16, 4)):
        writer.write(row.tobytes())


def parse(record):
    row = tf.reshape(tf.io.decode_raw(record, tf.float64), [4])
    return row, tf.reduce_sum(row, keepdims=True)


def of_rows():
    return tf.data.Dataset.range(8).map(lambda k: (tf.ones([4]), tf.ones([1])))


train = tfrun.Dataset.from_tfrecords(str(path), parse, batch_size=4, compression="GZIP")
valid = tfrun.Dataset.from_tf_data(of_rows, batch_size=4, samples=8)
if tfrun.world().size == 1:
    valid = tf.data.Dataset.from_tensor_slices((np.ones((8, 4)), np.ones((8, 1)))).batch(4)
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer="sgd", loss="mse")
history = model.fit(train, epochs=2, validation_data=valid, verbose=0).history
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(history))
