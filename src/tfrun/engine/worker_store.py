"""A few strings that all workers of a round share: in the host collective's world on rank 0.

Elsewhere TensorFlow's coordination service keeps them.
"""

from __future__ import annotations

import tensorflow as tf

from tfrun.collective.errors import PeerGone
from tfrun.engine import host_collective, tensorflow_collectives


def put(name: str, value: str) -> None:
    """Sets a string, once.

    Raises:
      tf.errors.UnavailableError: who keeps them has gone.
    """
    store = host_collective.store()
    try:
        if store is not None:
            store.set(name, value)
        else:
            tensorflow_collectives.put(name, value)
    except PeerGone as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None


def get(name: str, seconds: float) -> str | None:
    """Waits for a string; None when there is none after so many seconds.

    Raises:
      tf.errors.UnavailableError: who keeps them has gone.
    """
    store = host_collective.store()
    try:
        return (store or tensorflow_collectives).get(name, seconds)
    except PeerGone as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None
