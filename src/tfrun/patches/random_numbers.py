"""Each replica draws random numbers of its own: see engine/noise.py."""

from __future__ import annotations

import tensorflow as tf
from keras.src.random.seed_generator import SeedGenerator

from tfrun.engine import noise, replica

_TENSORFLOW_SEEDS = 2**31 - 1  # as tensorflow/python/framework/random_seed.py truncates them


def draw_own_noise(original):
    """A seed generator gives each replica other numbers."""

    def next(self, ordered=True):
        drawn, number = original(self, ordered), noise.number()
        if number == 0 or not (tf.is_tensor(drawn) and drawn.dtype == tf.int64):
            return drawn
        # The first of both numbers tells generators apart, the second counts their draws.
        return drawn + tf.constant([number * noise.APART, 0], tf.int64)

    return next


def draw_outside_of_functions(original):
    """What a run draws from without a seed is made outside of the function that it traces.

    "tf.function only supports singleton tf.Variables created on the first call", says TensorFlow
    otherwise of `keras.random.normal(shape)` in a training step under a strategy.
    """

    def global_seed_generator():
        run = replica.current()
        if run is None:
            return original()
        generators = run.context.strategy.seed_generators
        with tf.init_scope():  # past the strategy: each replica has a plain variable of its own
            if 0 not in generators:
                generators[0] = SeedGenerator()
            if run.local_number not in generators:
                generators[run.local_number] = copied = SeedGenerator(0)
                copied.state.assign(generators[0].state)
        return generators[run.local_number]

    return global_seed_generator


def seed_ops_apart(original):
    """TensorFlow's global seed gives each replica other numbers."""

    def get_seed(op_seed):
        graph_seed, op_seed = original(op_seed)
        number = noise.number()
        if graph_seed is None or number == 0:  # without a seed, TensorFlow takes a random one
            return graph_seed, op_seed
        return (graph_seed + number * noise.APART) % _TENSORFLOW_SEEDS, op_seed

    return get_seed
