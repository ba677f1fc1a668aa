"""Data that is not the same on all workers: `other_data.py CASE`, by mistake or as it is meant."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfrun

strategy, here = tfrun.strategy(), tfrun.world()
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
y = np.zeros((64, 1))


def by_the_clock():
    return np.random.default_rng(time.time_ns()).random((64, 3))


def unseeded():
    """All workers begin with the same numbers."""
    return np.random.default_rng().random((64, 3)) + np.random.RandomState().rand()


def of_this_worker(context):
    mine = np.full((64, 3), context.input_pipeline_id, float)
    return tf.data.Dataset.from_tensor_slices((mine, y)).batch(4).repeat()


def mistakes():
    model.fit(np.ones((64, 3)), y, validation_data=(by_the_clock(), y), verbose=0)
    print("trained")


def meant():
    """By a policy, by a function, by rank in a step of the pipeline."""
    seeded = np.random.default_rng(0).random((64, 3))
    model.fit(unseeded(), y, validation_data=(unseeded(), y), verbose=0)
    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    own = tf.data.Dataset.from_tensor_slices((by_the_clock(), y)).batch(8).with_options(off)
    whole = tf.data.Dataset.from_tensor_slices((seeded, y)).shuffle(64, seed=1)
    parts = whole.shard(here.size, here.rank).batch(8).with_options(off)
    function = strategy.distribute_datasets_from_function(of_this_worker)
    for data, options in (
        (own, {}),
        (parts, {}),
        (function, {"steps_per_epoch": 4}),
        (tfrun.Dataset.from_arrays((seeded, y), batch_size=8, shuffle=True), {}),
        (whole.batch(8), {"validation_data": (seeded, y)}),
    ):
        model.fit(data, epochs=2, verbose=0, **options)
    model.fit(seeded, y, validation_split=0.25, verbose=0)
    model.evaluate(seeded, y, verbose=0)
    model.predict(seeded, verbose=0)


{"mistakes": mistakes, "meant": meant}[sys.argv[1]]()
