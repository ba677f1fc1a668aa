"""Each replica draws random numbers of its own: one noise for all samples of the global batch.

Keras's seed generators and TensorFlow's random ops give every replica the same numbers, so that N
replicas would see one replica's dropout masks, latent vectors and augmentations N times. Here the
replica's number goes into what a seed generator or TensorFlow's global seed *gives*; their state is
the same on all replicas, as before, so a snapshot holds it once. Replica 0 draws what one worker
draws. A seed that the script states as a number (`keras.random.normal(shape, seed=42)`,
`tf.random.stateless_…`) is the script's own choice. `tf.random.Generator` does the same by itself.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random import seed_generator
from keras.src.random.seed_generator import SeedGenerator
from tensorflow.python.framework import random_seed

from tfrun.engine import replica

# Of the golden ratio: multiples of it, modulo any power of two, lie far from each other.
_APART = 0x9E3779B1
_TENSORFLOW_SEEDS = 2**31 - 1  # as random_seed.py truncates them
# Under which Keras keeps what `keras.random` draws from without a seed; until 3.13 without a name.
GLOBAL_SEED_GENERATOR = getattr(seed_generator, "GLOBAL_SEED_GENERATOR", "global_seed_generator")


def draw_own_noise() -> None:
    """Lets each replica of a run of ours draw its own random numbers; once."""
    if hasattr(SeedGenerator.next, "__wrapped__"):
        return
    SeedGenerator.next = _of_replica(SeedGenerator.next)
    random_seed.get_seed = _op_seed_of_replica(random_seed.get_seed)
    seed_generator.global_seed_generator = _of_strategy(seed_generator.global_seed_generator)


@contextlib.contextmanager
def shared_seeds(generators: dict[int, Any]) -> Iterator[None]:
    """Has the first replica of the block draw from the seeds that `keras.random.…` draws from here.

    Keras holds that generator for each thread, and replicas run in threads of their own.

    Args:
      generators: those of a strategy, for each of this worker's replicas.
    """
    here = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    if here is not None:
        generators[0] = here
    yield
    if here is None and 0 in generators:
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generators[0])


def _of_strategy(original):
    """What a run draws from without a seed is made outside of the function that it traces.

    "tf.function only supports singleton tf.Variables created on the first call", says TensorFlow
    otherwise of `keras.random.normal(shape)` in a training step under a strategy.
    """

    @functools.wraps(original)
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


def _number() -> int:
    """This replica's, in a run of ours; else 0."""
    run = replica.current()
    if run is None:
        return 0
    return run.number


def _of_replica(original):
    @functools.wraps(original)
    def next(self, ordered=True):
        drawn, number = original(self, ordered), _number()
        if number == 0 or not (tf.is_tensor(drawn) and drawn.dtype == tf.int64):
            return drawn
        # The first of both numbers tells generators apart, the second counts their draws.
        return drawn + tf.constant([number * _APART, 0], tf.int64)

    return next


def _op_seed_of_replica(original):
    @functools.wraps(original)
    def get_seed(op_seed):
        graph_seed, op_seed = original(op_seed)
        number = _number()
        if graph_seed is None or number == 0:  # without a seed, TensorFlow takes a random one
            return graph_seed, op_seed
        return (graph_seed + number * _APART) % _TENSORFLOW_SEEDS, op_seed

    return get_seed
