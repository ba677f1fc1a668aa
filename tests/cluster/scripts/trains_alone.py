"""Trainings that several workers do not share; the first argument says why."""

import contextlib
import os
import sys

KIND = sys.argv[1]
if KIND == "removed":
    os.environ.pop("TF_CONFIG")
if KIND == "nothing":
    print("hello")
    sys.exit(0)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if KIND in ("no model", "looks at gradients"):
    weights, image = tf.Variable(tf.zeros([4, 1])), tf.ones([8, 4])
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = tf.reduce_mean((image @ weights - 1.0) ** 2)
    if KIND == "no model":
        weights.assign_sub(0.1 * tape.gradient(loss, weights))  # by hand
    else:
        tape.gradient(loss, image)
    sys.exit(0)

x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
MOMENTUM = 0.1 * int(os.environ["RANK"]) if KIND == "by rank" else 0.0
strategy = None
if KIND == "mirrored":
    strategy = tf.distribute.MirroredStrategy()
if KIND == "one device":
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
if KIND == "default":
    strategy = tf.distribute.get_strategy()
if KIND == "central":
    strategy = tf.distribute.experimental.CentralStorageStrategy()
if KIND == "asks late":
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
if KIND == "removed":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope() if strategy else contextlib.nullcontext():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01, momentum=MOMENTUM), "mse")
if KIND == "predicts":
    model.predict(x, verbose=0)
elif KIND == "loop":
    optimizer, weights = keras.optimizers.SGD(), model.trainable_variables
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))  # here
else:
    with contextlib.suppress(Exception) if KIND == "removed" else contextlib.nullcontext():
        model.fit(x, y, batch_size=16, epochs=1, verbose=0)  # here
