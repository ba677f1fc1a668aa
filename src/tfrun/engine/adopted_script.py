"""Gives a script that names no strategy the job's: it trains on all workers as it stands.

Its models belong to the strategy from the moment they are made, and what they use is brought there
before they train (adoption.py). The rest of the script stands in no scope, as it does around
`with strategy.scope():`; in one, Keras divides a loss that it computes by the number of workers.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from tfrun.cluster.tf_config import parse_tf_config
from tfrun.engine.adoption import give, given
from tfrun.engine.local_mode import in_local_mode
from tfrun.engine.multi_worker import MultiWorkerMirrored, newest
from tfrun.engine.script_lines import script_line
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.job.world import fixed_replicas, world
from tfrun.process import channel

DEFAULT = "default strategy"  # which tells no script that there are several workers
_asked_for: list[str] = []


def adopt(model: Any) -> None:
    """Makes a model the job's that belongs to no strategy; all workers must call this.

    Nothing happens where the script has a strategy of its own, or this process trains with nobody.
    """
    if model._distribute_strategy is None and not in_local_mode():
        model._distribute_strategy = _given()


@functools.cache  # `train_on_batch` asks for each batch
def is_to_adopt() -> bool:
    """Whether this process trains together with others, and its script may be given a strategy."""
    if settings().strategy == "script" or not channel.is_open():
        return False
    if world().role not in ("chief", "worker"):
        return False
    cluster = parse_tf_config(os.environ.get("TF_CONFIG") or "{}").cluster
    several = cluster.trainers > 1 or fixed_replicas() > 1
    return several and not cluster.count("ps")


def in_place_of(name: str) -> Any | None:
    """The job's strategy for a script that asks for one of a single process.

    None outside a job, and beside a strategy of the script's own for several workers.

    Args:
      name: of the class that the script asks for.
    """
    found = _given(f"this script's {name} is the job's strategy here")
    if found is not None and name != DEFAULT:
        asks_for(name)
    return found


def asks_for(name: str) -> None:
    """Notes that the script has asked for a strategy of this class, and got the job's."""
    _asked_for[:] = [name]


def asked_for() -> str:
    """Which strategy the script has asked for, and got the job's; "" is none."""
    return _asked_for[0] if _asked_for else ""


def refuse(name: str) -> None:
    """Refuses a strategy of one process that the job's cannot replace.

    Raises:
      TfrunError: TFRUN-503.
    """
    if newest() is None and is_to_adopt():
        raise TfrunError(
            "TFRUN-503",
            f"{name} does not fit: the job has {world().size} workers, and each would train alone",
            where=script_line(),
            expected="tfrun.strategy(), or no strategy at all: the job's is used then",
            fix="Leave it out; or start with --strategy script, if each worker is to train alone",
        )


def _given(why: str = "this script names no strategy") -> Any | None:
    """The job's strategy; made where the script has none."""
    if given() is None and newest() is None and is_to_adopt():
        give(MultiWorkerMirrored())
        here = world()
        those = f"{here.size} workers" if here.size > 1 else "1 worker"
        other = settings().replicas or here.replicas != here.size
        among = f"{here.replicas} replicas on {those}" if other else those
        tell(f"adopted: {why}; its batches are shared out among {among}")
        # That of the environment the launcher has told of, and set to what it is here.
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            tell(f"the script's KERAS_BACKEND={backend} has no effect: Keras runs on TensorFlow")
    return given()


@functools.cache
def tell(text: str) -> None:
    """Says once what is other here than in the script."""
    if world().is_chief:
        channel.emit(reports.WorkerNotice(text=text))
