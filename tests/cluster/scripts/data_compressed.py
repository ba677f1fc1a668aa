"""GZIP files that two workers share out among themselves, trained by `fit`, counted in the weights;
then data that the ledger does not cover. Writes `counts.json`."""

import json
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

FILES = (20, 12, 8)
SAMPLES = sum(FILES)


class Predicted(keras.losses.Loss):
    """Lowers a sample's weight by 1 / (samples of the step) each time that it is used."""

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


def parsed(record):
    number = tf.strings.to_number(record, tf.int32)
    return tf.one_hot(number, SAMPLES), number


strategy, numbers = tfrun.strategy(), iter(range(SAMPLES))
if tfrun.world().local_rank == 0:
    for name, count in enumerate(FILES):
        with tf.io.TFRecordWriter(f"part-{name}.making", "GZIP") as writer:
            for _ in range(count):
                writer.write(f"{next(numbers):03}".encode())
    for name in range(len(FILES)):
        Path(f"part-{name}.making").rename(f"part-{name}.gz")
strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))

data = tfrun.Dataset.from_tfrecords(
    "part-*.gz", parsed, batch_size=8, compression="GZIP", shard="FILE"
)
with strategy.scope():
    inputs = keras.Input((SAMPLES,))
    outputs = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(1.0), Predicted())
model.fit(data, epochs=2, verbose=0)
if tfrun.world().is_chief:
    Path("counts.json").write_text(json.dumps((-model.get_weights()[0][:, 0]).tolist()))

rows = np.zeros((8, SAMPLES), "float32"), np.zeros(8, "int64")
model.fit(*rows, batch_size=4, verbose=0)
model.fit(tf.data.Dataset.from_tensor_slices(rows).batch(4), verbose=0)
for _ in strategy.experimental_distribute_dataset(tfrun.Dataset.from_arrays(rows, batch_size=4)):
    pass
