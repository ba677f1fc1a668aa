"""Gives each replica random numbers of its own: one noise for all samples of the global batch.

Keras's seed generators and TensorFlow's random ops give every replica the same numbers, so that N
replicas would see one replica's dropout masks, latent vectors and augmentations N times. Here the
replica's number goes into what a seed generator or TensorFlow's global seed *gives*; their state is
the same on all replicas, as before, so a snapshot holds it once. Replica 0 draws what one worker
draws. A seed that the script states as a number (`keras.random.normal(shape, seed=42)`,
`tf.random.stateless_…`) is the script's own choice. `tf.random.Generator` does the same by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from tfrun.engine import replica

# Of the golden ratio: multiples of it, modulo any power of two, lie far from each other.
APART = 0x9E3779B1
# Under which Keras keeps what `keras.random` draws from without a seed; until 3.13 without a name.
GLOBAL_SEED_GENERATOR = getattr(seed_generator, "GLOBAL_SEED_GENERATOR", "global_seed_generator")


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


def number() -> int:
    """This replica's, in a run of ours; else 0."""
    run = replica.current()
    if run is None:
        return 0
    return run.number
