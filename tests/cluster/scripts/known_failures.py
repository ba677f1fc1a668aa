"""Makes failures that many have had, and writes down what TensorFlow and Keras say of each."""

import json
import os
import resource
import socket
import tempfile
import traceback
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

folder = Path(tempfile.mkdtemp())
CASES = []


def dense(inputs=4, outputs=3):
    model = keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs, name="d")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@CASES.append
def weights_of_another_model():
    dense().save_weights(folder / "a.weights.h5")
    dense(outputs=5).load_weights(folder / "a.weights.h5")


@CASES.append
def checkpoint_of_another_model():
    path = tf.train.Checkpoint(model=dense()).save(str(folder / "whole"))
    tf.train.Checkpoint(model=dense(outputs=5)).restore(path)


@CASES.append
def labels():
    dense().fit(np.zeros((8, 4)), np.full(8, 12), verbose=0)


@CASES.append
def data_of_another_shape():
    dense().fit(np.zeros((8, 6)), np.zeros(8), verbose=0)


@CASES.append
def shapes_in_a_graph():
    add = tf.function(lambda a, b: a + b, input_signature=[tf.TensorSpec(None)] * 2)
    add(tf.zeros([3]), tf.zeros([4]))


@CASES.append
def array():
    np.ones((1 << 24, 1 << 24))


@CASES.append
def port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = {"worker": [f"127.0.0.1:{taken.getsockname()[1]}"]}
        tf.distribute.Server(cluster, job_name="worker", task_index=0)


@CASES.append
def full_disk_for_weights():
    (folder / "full.weights.h5").symlink_to("/dev/full")
    dense(1000, 1000).save_weights(folder / "full.weights.h5")


@CASES.append
def full_disk_for_records():
    with tf.io.TFRecordWriter("/dev/full") as file:
        for _ in range(100):
            file.write(bytes(10_000))


@CASES.append
def no_file():
    next(iter(tf.data.TFRecordDataset("/no/such.tfrecord")))


@CASES.append
def no_weights():
    dense().load_weights("/no/such.weights.h5")


@CASES.append
def damaged_file():
    (folder / "damaged").write_bytes(bytes(range(200)))
    next(iter(tf.data.TFRecordDataset(str(folder / "damaged"))))


@CASES.append
def no_number():
    tf.debugging.check_numerics(tf.constant(float("nan")), "loss")


@CASES.append
def too_many_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    held = []
    try:
        while True:
            held.append(Path("/dev/null").open())  # noqa: SIM115
    finally:
        for file in held:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


found = {}
for case in CASES:
    try:
        case()
    except Exception as error:
        kind, text = type(error).__name__, traceback.format_exc()
        found[case.__name__] = {"type": kind, "message": str(error), "traceback": text}
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(found))
