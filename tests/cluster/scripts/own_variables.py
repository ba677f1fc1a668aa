"""Plain variables above the scope, which a step assigns: `own_variables.py CASE`."""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

strategy = tfrun.strategy()
names = ("of_the_data", "of_the_sum", "steps", "average")
of_the_data, of_the_sum, steps, average = (tf.Variable(0.0, name=name) for name in names)
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False)])
    optimizer = keras.optimizers.SGD(0.1)
    mean = keras.metrics.Mean()
    inside = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    on_read = tf.Variable(
        *(0.0, False),
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    of_nothing = tf.Variable(0.0, name="of_nothing")
table, rows, made_late = tf.Variable(tf.zeros(8), name="table"), tf.Variable(tf.zeros(8)), []
x = np.random.RandomState(0).rand(64, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(16)
lookup = tf.lookup.experimental.MutableHashTable("int64", "float32", 0.0)


@tf.function
def step(batch):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 16
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        if sys.argv[1] == "mistake":
            of_the_data.assign_add(loss)
        if sys.argv[1] == "inside":
            of_nothing.assign_add(loss)
        if sys.argv[1] == "rows":
            table.scatter_nd_add(tf.cast(x[:, :1] * 8, "int32"), tf.ones(tf.shape(x)[0]))
        if sys.argv[1] == "lookup":
            lookup.insert(tf.cast(x[:, 0] * 8, "int64"), x[:, 1])
        if sys.argv[1] == "late":
            if not made_late:
                made_late.append(tf.Variable(0.0, name="made_late"))
            made_late[0].assign_add(loss)
        rows.scatter_add(tf.IndexedSlices(tf.ones(1), tf.constant([2])))
        of_the_sum.assign_add(tf.distribute.get_replica_context().all_reduce("sum", loss))
        steps.assign_add(delta=1.0)
        average.assign(0.9 * average + 0.1 * model.layers[0].kernel.value[0, 0])
        inside.assign_add(loss)
        on_read.assign_add(loss)
        mean.update_state(loss)

    strategy.run(on_replica, args=batch)


for batch in strategy.experimental_distribute_dataset(data):
    step(batch)
of_all = of_the_sum, steps, average, inside, on_read
print("found", *(f"{float(v.numpy()):.5f}" for v in (*of_all, rows[2])))
