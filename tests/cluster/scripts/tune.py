"""Trainings for tests/cluster/test_tune.py."""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

how = sys.argv[1]
with tfrun.strategy().scope():
    # A sample needs more than 8 MB in a step: few of them fill a small memory.
    width = 1 << 20 if how == "memory" else 8
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(tfrun.scaled_lr(0.1, base_batch=10)), loss="mse")
x = np.random.RandomState(0).rand(100, 8).astype("float32")
y = x.sum(axis=1, keepdims=True)
if how == "pipeline":
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(10), verbose=2)
else:
    model.fit(tfrun.Dataset.from_arrays((x, y), batch_size=10), epochs=1, verbose=2)
