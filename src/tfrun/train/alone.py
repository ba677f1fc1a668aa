"""Tells when this worker trains the whole job alone, beside others that do the same.

A script that makes no strategy, or one of a single process, does so under `-n 2`: the same training
twice, the same files twice, and nothing is faster. Known at the first update of an optimizer: who
shares a training has made its strategy before anything else of TensorFlow's.
"""

from __future__ import annotations

import json
import os

import tensorflow as tf

from tfrun.engine import script_place
from tfrun.engine.keras_optimizer import at_first_update
from tfrun.engine.vain_wait import last_collective
from tfrun.job import doubts
from tfrun.job.world import world
from tfrun.process import channel

CODE = "TFRUN-511"


def watch() -> None:
    """Has the first update tell, in a worker that has others to train with."""
    here = world()
    if channel.is_open() and here.size > 1 and here.role in ("chief", "worker"):
        stated = os.environ.get("TF_CONFIG", "")
        if not json.loads(stated or "{}").get("cluster", {}).get("ps"):
            at_first_update.append(lambda: _tell(here.size, stated))


def _tell(size: int, stated: str) -> None:
    if last_collective() is not None:
        return  # it has met the others: what it trains alone is its own affair
    why = _why(os.environ.get("TF_CONFIG", "") != stated)
    where = f" ({here})" if (here := script_place.here()) else ""
    text = (
        f"{size} workers each train the whole job alone{where}: {why}; "
        "write `with tfrun.strategy().scope():` around the model, its optimizer and compile, "
        "right after the imports"
    )
    channel.emit(doubts.REPORT, code=CODE, text=text)


def _why(changed: bool) -> str:
    if changed:
        return "the script has taken TF_CONFIG out of its environment, or changed it"
    if not tf.distribute.has_strategy():
        return "this script makes no strategy"
    name = type(tf.distribute.get_strategy()).__name__
    return f"{_public(name)} is a strategy of one process"


def _public(name: str) -> str:
    known = ("MirroredStrategy", "OneDeviceStrategy", "CentralStorageStrategy")
    return next((public for public in known if public.startswith(name[:8])), name)
