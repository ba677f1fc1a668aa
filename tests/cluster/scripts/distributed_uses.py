"""Uses distributed data in every way that TensorFlow's guides do, and prints all losses."""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
with strategy.scope():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    opt = keras.optimizers.SGD(0.05)
    opt.build(model.trainable_variables)
rows = tf.data.Dataset.from_tensor_slices
data = strategy.experimental_distribute_dataset(rows(x).shuffle(48, seed=2).batch(16))
valid = strategy.experimental_distribute_dataset(rows(x[:32]).batch(16))
assert data and valid


def one(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x) ** 2) / 16
    found = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(found, model.trainable_variables, strict=True))
    return loss


@tf.function
def closure():
    total = 0.0
    for batch in data:
        total += strategy.reduce("SUM", strategy.run(one, args=(batch,)), axis=None)
    return total


@tf.function
def argument(data):
    total = 0.0
    for batch in data:
        total += strategy.reduce("SUM", strategy.run(one, args=(batch,)), axis=None)
    return total


@tf.function
def iterator(it):
    return strategy.reduce("SUM", strategy.run(one, args=(next(it),)), axis=None)


@tf.function
def step(batch):
    return strategy.reduce("SUM", strategy.run(one, args=(batch,)), axis=None)


out = []
if "functions" in sys.argv:
    out += [float(closure()), float(argument(data)), float(argument(valid))]
    it = iter(data)
    out += [float(iterator(it)) for _ in range(3)]
    out += [float(step(b)) for b in valid]
    out += [float(step(iter(valid).get_next()))]
    out += [int(valid.cardinality), str(valid.element_spec)]
else:
    state = tfrun.TrainState(model=model, optimizer=opt)
    for epoch in range(2):
        for batch in state.steps(data, epochs=epoch + 1):
            out.append(float(step(batch)))
        out += [float(step(batch)) for batch in valid]
        it = iter(valid)
        out += [float(step(next(it))), float(iterator(it))]
        out += [float(step(iter(valid).get_next())), float(argument(valid))]
print("OUT", out, flush=True)
