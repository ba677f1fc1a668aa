"""Gives each replica random numbers of its own: one noise for all samples of the global batch.

Keras's seed generators and TensorFlow's random ops give every replica the same numbers, so that N
replicas would see one replica's dropout masks, latent vectors and augmentations N times. Here the
replica's number goes into what a seed generator or TensorFlow's global seed *gives*; their state is
the same on all replicas, as before, so a snapshot holds it once. Replica 0 draws what one worker
draws. What a step draws as a single number, such as a factor of its loss, is no sample's own: all
replicas draw the same there. A seed that the script states as a number (`keras.random.normal(shape,
seed=42)`, `tf.random.stateless_…`) is the script's own choice, and told (engine/same_draws.py).
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import tensorflow as tf
from keras.src.random.seed_generator import SeedGenerator
from tensorflow.python.framework import tensor_util

from tfrun.engine import replica, script_state
from tfrun.job.errors import TfrunError
from tfrun.job.world import take_one_for_good

# Of the golden ratio: multiples of it, modulo any power of two, lie far from each other.
_APART = 0x9E3779B1
_unseeded: dict[int, Callable[[int], int]] = {}  # by process: what draws there
_TENSORFLOW_SEEDS = 2**31 - 1  # as tensorflow/python/framework/random_seed.py truncates them
_HOLDS_ITS_SEED = "the step draws random numbers by a TensorFlow op that holds its seed"
_for_all = ContextVar("what is drawn now is one number for all replicas", default=False)


def _replica_number() -> int:
    """This replica's, in a run of ours; else 0."""
    run = replica.current()
    return 0 if run is None else run.number


def draw_own_noise(original):
    """A seed generator gives each replica other numbers."""

    def next(self, ordered=True):
        seed = original(self, ordered)
        if _for_all.get() or not (tf.is_tensor(seed) and seed.dtype == tf.int64):
            return seed
        return note_apart(_apart(seed))

    return next


def note_apart(seed: tf.Tensor) -> tf.Tensor:
    """`seed`, from now on known as one that each replica has for itself."""
    run = replica.current()
    if run is not None:
        run.own_seeds.append(seed)
        if run.losses is not None:
            run.losses.walk.mark_drawn(seed)
    return seed


def _apart(seed: tf.Tensor) -> tf.Tensor:
    """`seed` with the number of this replica in it."""
    number = _replica_number()
    if tf.is_tensor(number):
        apart = tf.cast(number, tf.int64) * _APART
        return seed + tf.stack([apart, tf.zeros_like(apart)])
    if number == 0:
        return seed
    # The first of both numbers tells generators apart, the second counts their draws.
    return seed + tf.constant([number * _APART, 0], tf.int64)


def note_what_is_made(original):
    """A generator that no model holds belongs to the state of a training, too."""

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        script_state.note_seeds(self)

    return __init__


def draw_one_for_all(original):
    """What draws a single number in a step draws the same on all replicas."""

    @functools.wraps(original)
    def draw(shape, *args, **kwargs):
        run = replica.current()
        if run is None or not _is_one_number(shape, run):
            return original(shape, *args, **kwargs)
        token = _for_all.set(True)
        try:
            return original(shape, *args, **kwargs)
        finally:
            _for_all.reset(token)

    return draw


def _is_one_number(shape: Any, run: replica.ReplicaRun) -> bool:
    """Whether what has this shape can be no sample's own.

    In a loop of TensorFlow's (`tf.map_fn`) it can: one is drawn for each sample there.
    """
    sizes = shape.as_list() if isinstance(shape, tf.TensorShape) and shape.rank == 0 else shape
    if not isinstance(sizes, list | tuple) or any(type(size) is not int for size in sizes):
        return False
    if getattr(tf.compat.v1.get_default_graph(), "is_control_flow_graph", False):
        return False
    has_one_sample = run.losses is None or run.losses.walk.batch == 1
    return all(size == 1 for size in sizes) and not (sizes and has_one_sample)


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
        if replica.current() is not None and not tf.executing_eagerly():
            script_state.note_stateful_op()
        number = _replica_number()
        if graph_seed is None:  # TensorFlow takes a random one
            return graph_seed, op_seed
        if tf.is_tensor(number):
            if not take_one_for_good(_HOLDS_ITS_SEED):
                raise _seed_of_an_op()
            number = _replica_number()
        if number == 0 or _for_all.get():
            return graph_seed, op_seed
        return (graph_seed + number * _APART) % _TENSORFLOW_SEEDS, op_seed

    return get_seed


def draw_own_noise_by_generator(original):
    """A `tf.random.Generator` gives each replica other numbers, whichever worker holds it.

    TensorFlow does so only for one that is made in the strategy's scope, and then replica 0 draws
    something else than one worker. What is drawn as a single number is the same on all replicas.
    """

    def _prepare_key_counter(self, shape):
        run = replica.current()
        if run is None:
            return original(self, shape)
        sizes = tensor_util.constant_value_as_shape(shape).as_list()
        if not _is_one_number(sizes, run):
            return original(self, _of_whole_batch(run, shape, sizes))
        token = _for_all.set(True)
        try:
            return original(self, shape)
        finally:
            _for_all.reset(token)

    return _prepare_key_counter


def _of_whole_batch(run: replica.ReplicaRun, shape: Any, sizes: list[int | None]) -> tf.Tensor:
    """The shape of what one worker draws, by whose size a generator goes on: on all alike.

    Args:
      run: of this replica.
      shape: of what it draws, a tensor.
      sizes: the same, as far as it is known.
    """
    if run.losses is None or not sizes:
        return shape
    batch, replicas = run.losses.walk.batch, run.context.num_replicas_in_sync
    if sizes[0] is None:
        run.losses.count_once()
    if sizes[0] is None and run.samples is not None:
        mine, every = (tf.cast(size, shape.dtype) for size in (run.samples, run.all_samples))
    elif batch is None or run.samples is not None:
        return shape
    else:
        mine, every = (tf.constant(size, shape.dtype) for size in (batch, batch * replicas))
    return tf.concat([tf.where(shape[:1] == mine, every, shape[:1]), shape[1:]], 0)


def key_apart(original):
    """The key of a `tf.random.Generator`'s numbers has the number of the replica in it."""

    def _preprocess_key(self, key):
        run = replica.current()
        if run is None:
            return original(self, key)
        if _for_all.get():
            return key
        first = tf.cast(_replica_number(), tf.int64) * _APART
        return note_apart(tf.bitcast(tf.bitcast(key, tf.int64) + first, tf.uint64))

    return _preprocess_key


def begin_alike(original):
    """What numpy's generators begin with that are given no seed follows from the job's.

    In the order in which a script makes them, which is the same on all workers. Processes that a
    script starts make their own, to differ from each other.
    """

    def randbits(k):
        return (_unseeded.get(os.getpid()) or original)(k)

    return randbits


def seed_numpy(seed: int) -> None:
    """States the job's seed, in a worker's process."""
    _unseeded[os.getpid()] = random.Random(seed).getrandbits


def _seed_of_an_op() -> TfrunError:
    return TfrunError(
        "TFRUN-518",
        f"{_HOLDS_ITS_SEED}, which would be the same for all replicas of a worker",
        where="tf.random.normal, uniform, shuffle, … in the model or its train_step",
        expected="with --replicas, numbers that follow from a seed generator's state",
        fix="Use keras.random.… with a SeedGenerator, or leave out --replicas",
    )
