"""Imported by a script: counts its steps, into COUNTS; worker DIES_RANK dies in step DIES_AT."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import keras

DIES_RANK, DIES_AT = (int(os.environ.get(name, "-1")) for name in ("DIES_RANK", "DIES_AT"))
# Read past what notes who asks: a worker whose script has asked for its place does not stay.
own = {name: os.environ._data.get(name.encode()) for name in ("TFRUN_ROUND", "RANK")}
is_to_die = own == {"TFRUN_ROUND": b"0", "RANK": str(DIES_RANK).encode()}
steps = 0


def counted(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        global steps
        steps += 1
        if "COUNTS" in os.environ:
            Path(os.environ["COUNTS"]).write_text(str(steps))
        if is_to_die and steps == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*args, **kwargs)

    return call


for owner, name in (
    (keras.callbacks.CallbackList, "on_train_batch_end"),
    (keras.Model, "train_on_batch"),
):
    setattr(owner, name, counted(getattr(owner, name)))
