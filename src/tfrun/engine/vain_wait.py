"""Makes a worker's collectives fail once it hears that it waits for others in vain.

What needs no other worker goes on. A collective fails, for it would wait for ever: the host
collective's at once, because its calls are counted; TensorFlow's own after a while, in which the
last one that all have made is over.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import tensorflow as tf

from tfrun.engine import host_collective, multi_worker
from tfrun.job import unmatched_call
from tfrun.job.settings import settings
from tfrun.process import channel

# Counted, not measured: a process that was stopped has its time when it goes on.
TICKS, TICK_SECONDS = 6, 0.5

_aborting = False


def listen() -> None:
    """Has this worker's collectives fail when it is told that the others do not come."""
    channel.when(unmatched_call.ENDED, _hear)
    channel.when(unmatched_call.PARTED, _hear_places)


def last_collective() -> int | None:
    """The number of this worker's last host collective; None when it has met nobody."""
    group = host_collective.current()
    if group is not None:
        return group.counts.collectives
    return 0 if multi_worker.uses_collectives() else None


def _hear_places() -> None:
    places = json.loads(channel.text_of(unmatched_call.PARTED))
    host_collective.end(unmatched_call.marked(unmatched_call.parted(places, settings().task)))


def _hear() -> None:
    tasks = json.loads(channel.text_of(unmatched_call.ENDED))
    reason = unmatched_call.marked(unmatched_call.ended(tasks))
    host_collective.end_after(min(last or 0 for last in tasks.values()), reason)
    if multi_worker.uses_collectives():
        threading.Thread(target=_abort, args=(reason,), name="tfrun ends", daemon=True).start()


def _abort(reason: str) -> None:
    """Makes TensorFlow's collectives fail, see `leaving.abort_collectives`."""
    from tensorflow.python.eager import context

    global _aborting
    if _aborting:
        return
    _aborting = True
    for _ in range(TICKS):
        time.sleep(TICK_SECONDS)
    here: Any = context.context()
    here.abort_collective_ops(tf.errors.FAILED_PRECONDITION, reason)
