"""Plain TensorFlow and Keras on two workers: are the repaired bugs still there?"""

from __future__ import annotations

import json
import os

import keras
import numpy as np
import tensorflow as tf

options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1024)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def fails(run) -> str:
    try:
        run()
    except Exception as error:
        return str(error)
    return ""


def fit():
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    model.fit(np.zeros((8, 4)), np.zeros((8, 1)), verbose=0)


def packs():
    """The number of all-reduces for two tensors of 4 KB each."""

    @tf.function
    def reduce():
        def on_replica():
            pair = [tf.ones([1024]), tf.ones([1024])]
            return strategy.extended._replica_ctx_all_reduce(tf.distribute.ReduceOp.SUM, pair)

        return strategy.run(on_replica)

    graph = reduce.get_concrete_function().graph
    return sum(op.type == "CollectiveReduceV2" for op in graph.get_operations())


@tf.function
def inner():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([1])))


@tf.function
def called_in_a_condition(flag):
    return tf.cond(flag, inner, lambda: tf.zeros([1]))


def argument():
    @tf.function
    def reduce(value):
        def on_replica(value):
            return tf.distribute.get_replica_context().all_reduce("SUM", value)

        return strategy.run(on_replica, args=(value,))

    return reduce(tf.ones([1]))


results = {
    "packs": packs(),
    "argument": fails(argument),
    "function in a condition": fails(lambda: called_in_a_condition(tf.constant(True))),
    "fit": fails(fit),
}
with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
    json.dump(results, file)
