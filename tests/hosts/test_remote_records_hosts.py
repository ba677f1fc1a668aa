"""Records at an s3:// URL, on parameter servers of two hosts: only the chief's host has a copy."""

from __future__ import annotations

import sys

import pytest
from lab import NET
from machines import Hosts, needs_hosts, thorough

from conftest import wait_until
from object_servers import S3_KEYS

pytest_plugins = ["host_fixtures"]
pytestmark = [needs_hosts, thorough, pytest.mark.timeout(300)]

PORT = 5000
STORAGE = {
    **S3_KEYS,
    **{"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"},
    "AWS_ENDPOINT_URL": f"http://{NET}.1:{PORT}",
}
# Fills a bucket with 60 records, the numbers from 0.
FILL = """
import botocore.session, sys, tensorflow as tf
client = botocore.session.get_session().create_client("s3", endpoint_url=sys.argv[1])
client.create_bucket(Bucket="bucket")
for part in range(3):
    with tf.io.TFRecordWriter("part") as writer:
        for number in range(20 * part, 20 * part + 20):
            writer.write(tf.io.serialize_tensor(tf.constant(float(number))).numpy())
    client.put_object(Bucket="bucket", Key=f"data/part-{part}", Body=open("part", "rb").read())
"""
# The servers and workers run no script: this is the chief, whose /run no other host sees.
TRAIN = """
import os, tempfile
import keras, tensorflow as tf, tfrun
os.environ.update(STORAGE)  # a secret is not sent to other machines; people have it in ~/.aws
os.mkdir("/run/own")
tempfile.tempdir = "/run/own"
def parse(record):
    number = tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [])
    return number[None], number
data = tfrun.Dataset.from_tfrecords("s3://bucket/data/part-*", parse, batch_size=4, shuffle=True)
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
model.fit(data, epochs=2, verbose=0)
total = float(model.predict(data, verbose=0).sum() / model.get_weights()[0][0, 0])
print("SUM", round(total), "steps", int(model.optimizer.iterations), len(os.listdir("/run/own")))
"""


def test_workers_on_another_host_train_on_the_chiefs_copy(hosts: Hosts) -> None:
    environment = {**hosts.environment, **STORAGE}
    with (hosts.lab.directory / "moto.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(PORT)]
        storage = hosts.lab.start("n1", command, hosts.directory, environment, log, log)
    try:
        ask = [sys.executable, "-c", f"import socket; socket.create_connection(('n1', {PORT}), 2)"]

        def answers() -> bool:
            return not hosts.lab.call("n2", ask, hosts.directory, hosts.environment, fails=True)

        wait_until(answers, "the storage answers", 30)
        fill = [sys.executable, "-c", FILL, STORAGE["AWS_ENDPOINT_URL"]]
        hosts.lab.call("n1", fill, hosts.directory, environment, seconds=60)
        script = f"STORAGE = {STORAGE!r}\n{TRAIN}"
        # A worker on each host, and the server on n2.
        code, out, err = hosts.run(
            script, "-H", "n1,n2", "-n", "2", "--ps", "1", "--max-restarts=0"
        )
        assert code == 0, (out, err)
        assert "SUM 1770 steps 30 1" in out, (out, err)
    finally:
        hosts.kill(storage)
