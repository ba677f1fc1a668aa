"""Which elements each worker gets of a plain tf.data pipeline, under each auto-shard policy.

FIT=POLICY: trains on a single file instead.
"""

import json
import os
from pathlib import Path

import keras
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
RANK = int(os.environ["RANK"])
FILES, EACH = 4, 4
Policy = tf.data.experimental.AutoShardPolicy
folder = Path(os.environ["TFRUN_TEST_OUT"]).with_suffix(f".records-{RANK}")
folder.mkdir()
for file in range(FILES):
    with tf.io.TFRecordWriter(str(folder / f"{file}.tfrecord")) as writer:
        for number in range(EACH):
            writer.write(str(file * EACH + number).encode())


def records(files):
    names = tf.data.Dataset.list_files(
        [str(folder / f"{file}.tfrecord") for file in range(files)], shuffle=False
    )
    read = names.interleave(tf.data.TFRecordDataset, cycle_length=1)
    return read.map(lambda text: tf.strings.to_number(text, tf.int64))


def with_policy(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.batch(4).with_options(options)


def seen(dataset, policy):
    """This worker's elements of one pass; all workers make as many steps."""
    made = strategy.experimental_distribute_dataset(with_policy(dataset, policy))
    return [
        int(value)
        for batch in made
        for part in strategy.experimental_local_results(batch)
        for value in part
    ]


def fit(dataset, policy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    pairs = dataset.map(lambda value: (tf.cast([value], tf.float32), [0.0]))
    model.fit(with_policy(pairs, policy), verbose=0)


if name := os.environ.get("FIT"):
    fit(records(1), Policy[name])
    raise SystemExit("one file was enough for two workers")
found = {
    policy.name: seen(records(FILES), policy)
    for policy in (Policy.AUTO, Policy.FILE, Policy.DATA, Policy.OFF)
}
found["AUTO, no files"] = seen(tf.data.Dataset.range(16), Policy.AUTO)
found["DATA, 1 file"] = seen(records(1), Policy.DATA)
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(found))
