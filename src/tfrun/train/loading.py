"""Has all workers wait for what they load, if the chief has just saved it or is about to.

`if rank == 0: model.save(path)`, and then all load the path: the others are there first. So who
loads something waits for the chief to come to the same load, for then it has done all that stands
above it. The chief waits for nobody. A script that only tries whether there is something to load
has all workers try, so it waits for no longer than the chief takes.

And when a training begins, weights are compared that only some workers may have loaded.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.collective import stamps
from tfrun.engine import adoption, host_collective, multi_worker
from tfrun.engine.agree import sum_over_workers
from tfrun.engine.local_mode import in_local_mode
from tfrun.engine.sync_check import check_in_sync
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.job.unmatched_call import ENDED
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.train import chief_journal, saving
from tfrun.train.chief_journal import Call

# For a chief that never comes there: with the host collective it is known to wait elsewhere.
MISSING_SECONDS, OLD_SECONDS = 30.0, 10.0
TOLD_SECONDS = 3.0
_CHIEFS = frozenset({"chief:0", "worker:0"})

_state = threading.local()
_noted: list[bool] = []


def from_chief(path: Any, load: Callable[[Any], Any]) -> Any:
    """Loads `path`, once the chief has written it, if it is to."""
    if getattr(_state, "loads", False):  # Keras's methods call its functions
        return load(path)
    _state.loads = True
    try:
        if not saving.wait_until_written(path):
            path = _meet_chief(path)
        return load(path)
    finally:
        _state.loads = False


def _meet_chief(path: Any) -> Any:
    """Waits for the chief; returns what to load: `path`, or what is the same on the chief.

    A script for one machine may have made a name of its own on each worker, of the time or by
    `tempfile`. A callback of Keras's has saved to the chief's.
    """
    within_a_call = bool(stamps.standing().phase)  # of Keras's, whose callbacks look for themselves
    alone = in_local_mode() or settings().rehearses
    if alone or within_a_call or multi_worker.newest() is None:
        return path
    made = chief_journal.call(saving.key_of(path), loads=True)
    with contextlib.suppress(tf.errors.OpError):  # the store is gone, and the chief with it
        if world().is_chief:
            chief_journal.writer.come(made)
            return path
        with progress.in_collective():
            _wait(made, _is_there(Path(made.path)))
    chiefs = chief_journal.reader.path_of_chief
    is_other = chiefs and chiefs != made.path and adoption.given() is not None
    return chiefs if is_other and not _is_there(Path(made.path)) else path


def _is_there(path: Path) -> bool:
    """Whether there is something of that name; a checkpoint is several files that begin with it."""
    try:
        return any(file.name.startswith(path.name) for file in path.parent.iterdir())
    except OSError:
        return False


def _wait(made: Call, exists: bool) -> None:
    began, told = time.monotonic(), False
    until = began + (OLD_SECONDS if exists else MISSING_SECONDS)
    reader = chief_journal.reader
    before, reader.path_of_chief = reader.stood(), ""
    while not reader.has_passed(made, before):
        now = time.monotonic()
        if now > until or _chief_has_ended():
            return
        if not told and now - began > TOLD_SECONDS:
            told = True
            text = f"waits for the chief at {made.place}: to load {made.path}"
            channel.emit(reports.WorkerNotice(text=text))


def _chief_has_ended() -> bool:
    said = channel.text_of(ENDED)
    return bool(said) and not _CHIEFS.isdisjoint(json.loads(said))


def _stands() -> None:
    if world().is_chief:
        with contextlib.suppress(tf.errors.OpError):
            chief_journal.writer.stand()


def note_weights() -> None:
    """The script has loaded values into variables."""
    if not in_local_mode() and not _noted:
        _noted.append(True)


def weights_were_noted() -> bool:
    """Whether the script has loaded values into variables since this was asked last."""
    was = bool(_noted)
    _noted.clear()
    return was


def check_weights(strategy: Any, model: Any) -> None:
    """Compares all variables of all workers; a collective.

    Raises:
      TfrunError: TFRUN-504 when they differ, as after `if is_chief: model.load_weights(…)`, or
        where a worker's machine does not see the file that the others have loaded.
    """
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    counts = np.zeros(world().size, np.int64)
    counts[world().rank] = len(variables)
    counts = sum_over_workers(strategy, counts)
    if not (counts == counts[0]).all():
        raise TfrunError(
            "TFRUN-504",
            f"the model has {', '.join(map(str, counts))} variables on the workers",
            expected="the same weights loaded on all workers",
            fix="Load on all workers, from a file that all of them see",
        )
    check_in_sync([(variable.path, variable) for variable in variables])


# The chief tells the others when it waits in a collective, where it waits for them.
host_collective.when_it_waits(_stands)
