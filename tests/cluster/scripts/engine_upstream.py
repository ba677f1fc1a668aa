"""Plain TensorFlow and Keras on two logical devices: are the repaired bugs still there?"""

from __future__ import annotations

import json
import os

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
one = tf.distribute.OneDeviceStrategy("CPU:0")
X = np.random.RandomState(0).rand(13, 6).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def train(strategy, optimizer=None, layers=(), n=12, outputs=1):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        inputs = keras.Input((6,))
        hidden = inputs
        for make in layers:
            hidden = make()(hidden)
        names = [f"out{i}" for i in range(outputs)]
        model = keras.Model(
            inputs, {name: keras.layers.Dense(1, name=name)(hidden) for name in names}
        )
        model.compile(
            optimizer=optimizer() if optimizer else keras.optimizers.SGD(0.1),
            loss=dict.fromkeys(names, "mse"),
        )
    y = dict.fromkeys(names, Y[:n])
    model.logs = model.fit(X[:n], y, batch_size=6, shuffle=False, verbose=0).history
    return model


def differ(optimizer=None, n=12):
    pair = [train(strategy, optimizer, n=n).get_weights() for strategy in (one, two)]
    return max(float(np.abs(a - b).max()) for a, b in zip(*pair, strict=True)) > 1e-4


def fails(run) -> str:
    try:
        run()
    except Exception as error:
        return str(error)
    return ""


def layer_state_drifts():
    norm = train(two, layers=[keras.layers.BatchNormalization]).layers[1]
    first, second = two.experimental_local_results(norm.moving_mean.value)
    return float(tf.reduce_max(tf.abs(first - second))) > 0


def iterators_are_tuned() -> bool:
    """Whether the half of a distributed iterator that a device has still asks for tuning."""
    made = []
    original = multi_device_iterator_ops._create_device_dataset

    def look(*args, **kwargs):
        made.append(original(*args, **kwargs))
        return made[-1]

    multi_device_iterator_ops._create_device_dataset = look
    try:
        iter(two.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2)))
    finally:
        multi_device_iterator_ops._create_device_dataset = original
    return bool(made) and all(each.options().autotune.enabled is not False for each in made)


def one_device_takes_the_detour() -> bool:
    made = iter(one.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2)))
    read = made._iterators[0]._iterator
    return isinstance(read, multi_device_iterator_ops.OwnedMultiDeviceIterator)


central = tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"])
accumulate = lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)  # noqa: E731
logs = train(one, n=7, outputs=2).logs
results = {
    "clips local gradients": differ(lambda: keras.optimizers.SGD(0.1, clipnorm=0.01)),
    "weighs short batches alike": differ(n=13),
    "averages nothing in layers": layer_state_drifts(),
    "accumulation": fails(lambda: train(two, accumulate)),
    "central storage": fails(lambda: train(central, layers=[keras.layers.BatchNormalization])),
    "losses of outputs count batches": abs(
        logs["out0_loss"][0] + logs["out1_loss"][0] - logs["loss"][0]
    )
    > 1e-4,
    "iterators are tuned": iterators_are_tuned(),
    "one device takes the detour": one_device_takes_the_detour(),
}
with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
    json.dump(results, file)
