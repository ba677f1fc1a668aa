"""Imported by a script: counts its steps, into COUNTS; worker DIES_RANK dies in step DIES_AT."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import keras

DIES_RANK, DIES_AT = (int(os.environ.get(name, "-1")) for name in ("DIES_RANK", "DIES_AT"))
is_to_die = os.environ.get("TFRUN_ROUND") == "0" and os.environ.get("RANK") == str(DIES_RANK)
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
