"""When the agent says that the round is over because a peer has gone.

A worker that waits in a collective learns of a peer's death by itself, but one that comes to the
next collective later waits for TensorFlow's heartbeats. So the agent tells all at once: what is in
a collective fails now, and who has no state to keep ends now.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrun.worker import channel

_keeping = 0


def listen() -> None:
    """Has this worker leave when it is told to."""
    channel.when("leave", _leave)


@contextlib.contextmanager
def keeping_state() -> Iterator[None]:
    """While it lasts a collective's failure leads to a snapshot, which is waited for."""
    global _keeping
    _keeping += 1
    try:
        yield
    finally:
        _keeping -= 1


def _leave() -> None:
    if _keeping:
        abort_collectives()
        return
    channel.emit("error", type="UnavailableError", message="a peer has left", traceback="")
    os._exit(1)


def abort_collectives() -> None:
    """Makes this process's collectives fail, those that run and all that follow.

    tensorflow/python/eager/context.py; MultiWorkerMirroredStrategy's own health check does the
    same when it finds a peer dead. There is no public name for it.
    """
    from tensorflow.python.eager import context

    here: Any = context.context()
    here.abort_collective_ops(
        tf.errors.UNAVAILABLE, "Collective ops is aborted by: a peer has left the round"
    )
