"""Finds where all workers' scripts stand once TensorFlow's collectives no longer match.

TensorFlow's error is the same on all workers and names none of them. Each tells the others, by the
coordination service of TensorFlow's cluster, where it has met it.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tfrun.job import unmatched_call
from tfrun.job.world import world

# The error reaches all that wait within milliseconds; who does not wait has nothing to tell.
TELL_SECONDS, LEAST_SECONDS = 3.0, 0.05


def of_all(mine: str) -> str:
    """Says where the workers stand; "" when the others cannot be asked.

    Args:
      mine: where this one does, see `absent.stands`.
    """
    here = world()
    places, until = {_task(here.rank): mine}, time.monotonic() + TELL_SECONDS
    try:
        _tell(here.rank, mine)
        for rank in set(range(here.size)) - {here.rank}:
            places[_task(rank)] = _told(rank, max(LEAST_SECONDS, until - time.monotonic()))
    except (tf.errors.OpError, RuntimeError):
        return ""  # the service has gone with the chief, or was never there
    return unmatched_call.parted(places, _task(here.rank)) if len(places) > 1 else ""


def _task(rank: int) -> str:
    return f"worker:{rank}"


def _name(rank: int) -> str:
    return f"tfrun/{world().round}/stands/{rank}"


@functools.cache  # a name can be given once, and it is the first error that counts
def _tell(rank: int, mine: str) -> None:
    eager: Any = context.context()
    eager.set_config_key_value(_name(rank), mine)


def _told(rank: int, seconds: float) -> str:
    eager: Any = context.context()
    try:
        return eager.get_config_key_value(_name(rank), int(1000 * seconds))
    except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
        return "elsewhere"
