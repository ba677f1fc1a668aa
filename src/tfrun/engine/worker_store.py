"""A few strings that all workers of a round share: in the host collective's world on rank 0.

Elsewhere TensorFlow's coordination service keeps them (tensorflow/python/eager/context.py; it has
no public name).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tfrun.collective.errors import PeerGone
from tfrun.engine import host_collective


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
            _service().set_config_key_value(name, value)
    except PeerGone as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None


def get(name: str, seconds: float) -> str | None:
    """Waits for a string; None when there is none after so many seconds.

    Raises:
      tf.errors.UnavailableError: who keeps them has gone.
    """
    store = host_collective.store()
    try:
        if store is not None:
            return store.get(name, seconds)
        return _service().get_config_key_value(name, int(1000 * seconds))
    except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
        return None
    except PeerGone as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None


def _service() -> Any:
    return context.context()
