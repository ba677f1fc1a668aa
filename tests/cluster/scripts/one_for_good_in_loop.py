"""Adds up what each step of a loop reads; between two epochs its workers come to have one replica.

For good: the script calls `strategy.run` with something that no step has given.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

strategy = tfrun.strategy()
x = np.arange(48, dtype="float32").reshape(48, 1)
with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-6)
    optimizer.build(model.trainable_variables)
if sys.argv[1] == "ours":
    data = tfrun.Dataset.from_arrays(x, batch_size=16)
else:
    data = tf.data.Dataset.from_tensor_slices(x).batch(16)
if sys.argv[1] == "distributed":
    data = strategy.experimental_distribute_dataset(data)


def on_replica(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x) ** 2)
    found = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))
    return tf.reduce_sum(x)


@tf.function
def step(batch):
    return strategy.reduce("SUM", strategy.run(on_replica, args=(batch,)), axis=None)


@tf.function
def validate(x):
    return strategy.run(model, args=(x,))


read = []
state = tfrun.TrainState(model=model, optimizer=optimizer)
for epoch in range(2):
    read.append([float(step(batch)) for batch in state.steps(data, epochs=epoch + 1)])
    validate(tf.ones((2, 1)))
if tfrun.world().is_chief:
    print("READ", *read, flush=True)
