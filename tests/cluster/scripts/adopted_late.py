"""A script that does much before its first model; KIND says how it gets its strategy."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

KIND = os.environ["KIND"]
# TensorFlow takes all this before its first tensor only.
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)

keras.config.set_floatx("float64")
keras.utils.set_random_seed(7)
X = keras.random.uniform((48, 6), seed=3)
counted = tf.Variable(0)
counted.assign_add(int(tf.size(X)))
Y = tf.function(lambda x: tf.reduce_sum(x, axis=1))(X)
data = tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x + 1.0, y)).batch(12)
scale = keras.layers.Normalization()
scale.adapt(data.map(lambda x, _: x))


def small():
    return keras.Sequential(
        [keras.Input((6,)), scale, keras.layers.Dense(3), keras.layers.Dense(1)]
    )


Options = tf.distribute.experimental.CommunicationOptions
said: list[str] = []
strategy = None
if KIND == "own":
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=Options(5 << 20))
with strategy.scope() if strategy else contextlib.nullcontext():
    model = small()
if KIND == "model first":
    with warnings.catch_warnings(record=True) as found:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            Options(7 << 20, implementation="RING"),
        )
    said = [str(each.message) for each in found if "no effect" in str(each.message)]
with strategy.scope() if strategy else contextlib.nullcontext():
    model.compile(keras.optimizers.SGD(0.1, 0.9), "mse")
history = model.fit(data, epochs=2, verbose=0).history
result = {
    "numbers": [*history["loss"], *(float(np.sum(w)) for w in model.get_weights())],
    "counted": int(counted),
    "predicted": float(np.sum(model.predict(X, verbose=0))),
    "devices": len(tf.config.list_logical_devices("CPU")),
    "replicas": model.distribute_strategy.num_replicas_in_sync,
    "pack": strategy and strategy.extended._communication_options.bytes_per_pack,
    "said": said,
}
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(result))
